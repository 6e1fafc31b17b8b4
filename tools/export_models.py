#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the weightless ONNX files of models/.

Each network is built from its configuration with random weights (nothing is
downloaded), exported in training form by PyTorch's TorchScript-based exporter,
and stripped of its weights:

* Parameters and BatchNorm statistics stay in graph.initializer with their
  name, dims and data_type, but are declared as external data in a file
  `weights.bin` that does not exist. Planning needs shapes, never values.
* Other initializers and Constant nodes (shape constants, index tables, masks)
  keep their data inline.
* The exporter reorders the gates of LSTM and GRU weights with Slice, Concat and
  Unsqueeze nodes. They are folded away: W, R and B are plain initializers.
* Doc strings and metadata are removed. Files are byte-identical between runs.

Files were made with Python 3.11, torch 2.5.1, torchvision 0.20.1,
transformers 4.46.3 and onnx 1.17.0:

    pip install torch==2.5.1 torchvision==0.20.1 transformers==4.46.3 onnx==1.17.0
    python tools/export_models.py --out models
"""

import argparse
import collections
import functools
import io
import math
import os
import pathlib
import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import NamedTuple

import onnx
import torch
import torchvision
import transformers
from onnx import TensorProto
from torch import Tensor, nn

OPSET = 17
BATCH = 2  # traced batch size; the exported dimension is the symbol "batch"
INLINE_LIMIT = 64  # unnamed float tensors up to this many elements stay inline
FLOAT_SIZE = {TensorProto.FLOAT: 4, TensorProto.DOUBLE: 8, TensorProto.FLOAT16: 2}


class Export(NamedTuple):
    """A network and how to call it."""

    model: nn.Module
    inputs: dict[str, Tensor]  # in the order of the arguments of forward()
    outputs: tuple[str, ...] = ("logits",)
    batch_axis: int = 0  # the same for all inputs and outputs


# Networks ---------------------------------------------------------------------


def tokens(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.int64)


def image_net(name: str, size: int = 224, outputs=("logits",), **options) -> Export:
    """A torchvision network on square RGB images."""
    model = torchvision.models.get_model(name, weights=None, **options)
    return Export(model, {"images": torch.zeros(BATCH, 3, size, size)}, outputs)


class Seq2Seq(nn.Module):
    """nn.Transformer, sequence-first, with embeddings and output projection."""

    def __init__(self, layers: int, length: int, vocab: int, width: int = 512):
        super().__init__()
        self.scale = math.sqrt(width)
        self.src_embedding = nn.Embedding(vocab, width)
        self.tgt_embedding = nn.Embedding(vocab, width)
        self.transformer = nn.Transformer(width, 8, layers, layers, 2048, dropout=0.1)
        self.projection = nn.Linear(width, vocab)
        # No buffer: a plain tensor becomes a Constant node, not an initializer.
        self.causal_mask = nn.Transformer.generate_square_subsequent_mask(length)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        hidden = self.transformer(
            self.src_embedding(src) * self.scale,
            self.tgt_embedding(tgt) * self.scale,
            tgt_mask=self.causal_mask,
            tgt_is_causal=False,
        )
        return self.projection(hidden)


def transformer(layers: int = 6, length: int = 64) -> Export:
    inputs = {"src": tokens(length, BATCH), "tgt": tokens(length, BATCH)}
    return Export(Seq2Seq(layers, length, vocab=32000), inputs, batch_axis=1)


class RecurrentLM(nn.Module):
    """Embedding, stacked recurrent layers with dropout, linear decoder.

    The layers are separate modules because the exporter refuses the dropout
    argument of a multi-layer nn.LSTM or nn.GRU in training mode.
    """

    def __init__(self, cell: type[nn.RNNBase], layers: int, width: int, vocab: int):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.rnn = nn.ModuleList(cell(width, width) for _ in range(layers))
        self.dropout = nn.Dropout(0.5)
        self.decoder = nn.Linear(width, vocab)

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.dropout(self.embedding(ids))
        for layer in self.rnn:
            hidden = self.dropout(layer(hidden)[0])
        return self.decoder(hidden)


def recurrent_lm(cell: type[nn.RNNBase]) -> Export:
    model = RecurrentLM(cell, layers=2, width=650, vocab=10000)
    return Export(model, {"tokens": tokens(35, BATCH)}, batch_axis=1)


def bert(layers: int, hidden: int, length: int = 128) -> Export:
    config = transformers.BertConfig(
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden,
        attn_implementation="eager",
        return_dict=False,
    )
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = {name: tokens(BATCH, length) for name in names}
    return Export(transformers.BertForMaskedLM(config), inputs)


def gpt2_small(length: int = 256) -> Export:
    config = transformers.GPT2Config(
        attn_implementation="eager", use_cache=False, return_dict=False
    )
    model = transformers.GPT2LMHeadModel(config)
    # One causal mask of the traced length for all layers, not twelve of 1 MB.
    mask = torch.ones(1, 1, length, length, dtype=torch.bool).tril()
    for block in model.transformer.h:
        block.attn.bias = mask
    return Export(model, {"input_ids": tokens(BATCH, length)})


def t5_small(length: int = 64) -> Export:
    config = transformers.T5Config(use_cache=False, return_dict=False)
    names = ("input_ids", "attention_mask", "decoder_input_ids")
    inputs = {name: tokens(BATCH, length) for name in names}
    model = transformers.T5ForConditionalGeneration(config)
    return Export(model, inputs, ("logits", "encoder_hidden"))


def llama_tiny(length: int = 64) -> Export:
    config = transformers.LlamaConfig(
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=length,
        attn_implementation="eager",
        use_cache=False,
        return_dict=False,
    )
    inputs = {name: tokens(BATCH, length) for name in ("input_ids", "attention_mask")}
    return Export(transformers.LlamaForCausalLM(config), inputs)


Table = dict[str, Callable[[], Export]]
net = functools.partial
segmentation = net(net, image_net, weights_backbone=None)
PAIR = ("logits", "aux")

SHIPPED: Table = {
    "vgg19": net(image_net, "vgg19", init_weights=False),
    "resnet50": net(image_net, "resnet50"),
    "resnet101": net(image_net, "resnet101"),
    "inception_v3": net(image_net, "inception_v3", 299, PAIR, init_weights=False),
    "vit_b16": net(image_net, "vit_b_16"),
    "transformer": transformer,
    "transformer_2layer": net(transformer, layers=2),
    "bert_large": net(bert, layers=24, hidden=1024),
    "gpt2_small": gpt2_small,
    "lstm_lm": net(recurrent_lm, nn.LSTM),
}

# More networks to try an importer on; not shipped.
PLAIN = """alexnet densenet121 mobilenet_v2 mobilenet_v3_large efficientnet_b0
    shufflenet_v2_x1_0 squeezenet1_1 regnet_y_400mf convnext_tiny swin_t mnasnet1_0
    resnext50_32x4d wide_resnet50_2 maxvit_t"""
EXTRA: Table = {name: net(image_net, name) for name in PLAIN.split()} | {
    "googlenet": net(
        image_net, "googlenet", outputs=("logits", "aux2", "aux1"), init_weights=False
    ),
    "fcn_resnet50": segmentation("fcn_resnet50", outputs=PAIR, aux_loss=True),
    "deeplabv3_resnet50": segmentation("deeplabv3_resnet50", outputs=PAIR, aux_loss=True),
    "lraspp_mobilenet_v3_large": segmentation("lraspp_mobilenet_v3_large"),
    "bert_small": net(bert, layers=4, hidden=512),
    "t5_small": t5_small,
    "llama_tiny": llama_tiny,
    "gru_lm": net(recurrent_lm, nn.GRU),
}

# Export -----------------------------------------------------------------------


def trace(export: Export) -> onnx.ModelProto:
    """Export in training form, with a symbolic batch dimension."""
    names = (*export.inputs, *export.outputs)
    buffer = io.BytesIO()
    torch.onnx.export(
        export.model.train(),
        tuple(export.inputs.values()),
        buffer,
        training=torch.onnx.TrainingMode.TRAINING,
        do_constant_folding=False,
        keep_initializers_as_inputs=False,
        opset_version=OPSET,
        input_names=list(export.inputs),
        output_names=list(export.outputs),
        dynamic_axes={name: {export.batch_axis: "batch"} for name in names},
        dynamo=False,
    )
    return onnx.load_model_from_string(buffer.getvalue())


def fold_recurrent_weights(graph: onnx.GraphProto) -> None:
    """Let LSTM and GRU read W, R and B from initializers, without gate shuffles."""
    producer = {name: node for node in graph.node for name in node.output}
    weights = {tensor.name: tensor for tensor in graph.initializer}

    def sources(value: str) -> set[str]:
        if value in weights:
            return {value}
        return set().union(*map(sources, producer[value].input))

    for node in graph.node:
        if node.op_type in ("LSTM", "GRU"):
            for slot in (1, 2, 3):
                parts = sorted(sources(node.input[slot]), reverse=True)
                tensor = weights[parts[0]]
                rows, *rest = tensor.dims
                tensor.dims[:] = [1, len(parts) * rows, *rest]
                tensor.name = tensor.name.replace("bias_ih", "bias")
                node.input[slot] = tensor.name


def drop_unused(graph: onnx.GraphProto) -> None:
    """Remove nodes and initializers that no output depends on."""
    used = {value.name for value in graph.output}
    nodes = []
    for node in reversed(graph.node):
        if used.intersection(node.output):
            used.update(node.input)
            nodes.append(node)
    tensors = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(reversed(nodes))
    graph.initializer.extend(tensors)


def strip(model: onnx.ModelProto, weights: set[str]) -> int:
    """Remove weight data and remarks; return the number of bytes declared."""
    end = 0
    for tensor in model.graph.initializer:
        elements = math.prod(tensor.dims)
        if tensor.data_type not in FLOAT_SIZE:
            continue
        if tensor.name not in weights and elements <= INLINE_LIMIT:
            continue
        size = FLOAT_SIZE[tensor.data_type] * elements
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        place = {"location": "weights.bin", "offset": end, "length": size}
        for key, value in place.items():
            tensor.external_data.add(key=key, value=str(value))
        end += size
    model.ClearField("metadata_props")
    model.graph.ClearField("doc_string")
    for item in (*model.graph.node, *model.graph.initializer, *model.graph.value_info):
        item.ClearField("doc_string")
    return end


def check(data: bytes, weight_bytes: int) -> None:
    """Check the structure; a sparse file stands in for the weights."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "weights.bin").touch()
        os.truncate(folder / "weights.bin", weight_bytes)
        (folder / "model.onnx").write_bytes(data)
        onnx.checker.check_model(folder / "model.onnx", full_check=True)


def write(name: str, build: Callable[[], Export], folder: pathlib.Path) -> None:
    """Export one network and print a summary."""
    torch.manual_seed(0)
    export = build()
    model = trace(export)
    fold_recurrent_weights(model.graph)
    drop_unused(model.graph)
    weight_bytes = strip(model, set(export.model.state_dict()))
    data = model.SerializeToString(deterministic=True)
    check(data, weight_bytes)
    (folder / f"{name}.onnx").write_bytes(data)

    stored = sum(
        math.prod(tensor.dims)
        for tensor in model.graph.initializer
        if tensor.external_data and ".running_" not in tensor.name
    )
    known = sum(parameter.numel() for parameter in export.model.parameters())
    count = collections.Counter(node.op_type for node in model.graph.node)
    print(f"{name}: {len(data)} bytes, {count.total()} nodes,", end=" ")
    print(f"{stored} parameters in the file, {known} in the network")
    print("  " + " ".join(f"{op}:{n}" for op, n in sorted(count.items())), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Write weightless ONNX models.")
    parser.add_argument("--out", type=pathlib.Path, default="models", help="folder")
    parser.add_argument("--only", metavar="NAME", help="write this network only")
    parser.add_argument("--extra", action="store_true", help="networks not shipped")
    args = parser.parse_args()
    table = EXTRA if args.extra else SHIPPED
    if args.only and args.only not in table:
        parser.error(f"no network {args.only}; there are: {' '.join(table)}")

    warnings.simplefilter("ignore")
    args.out.mkdir(parents=True, exist_ok=True)
    failed = False
    for name in [args.only] if args.only else table:
        try:
            write(name, table[name], args.out)
        except Exception as error:  # the exporter's errors have no common base
            failed = True
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
