#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the weightless ONNX files of models/ and, with --measured, of bench/models/.

Each network is built from its configuration with random weights (nothing is
downloaded), exported in training form by PyTorch's TorchScript-based exporter,
and stripped of its weights:

* Parameters and BatchNorm statistics stay in graph.initializer with their
  name, dims and data_type, but are declared as external data in a file
  `weights.bin` that does not exist. Planning needs shapes, never values.
* Other tensors (shape constants, index tables, masks) keep their data inline.
* The exporter's nodes that reorder the gates of LSTM and GRU weights are folded
  away: W, R and B are plain initializers.
* There are no doc strings and no metadata. Runs give byte-identical files.

The files were made with Python 3.11 and these versions:

    pip install torch==2.5.1 torchvision==0.20.1 transformers==4.46.3 onnx==1.17.0
    python tools/export_models.py
"""

import argparse
import collections
import io
import math
import pathlib
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import onnx
import torch
import torchvision
import transformers
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

BATCH = 2  # traced batch size; the exported dimension is the symbol "batch"
INLINE_LIMIT = 64  # unnamed float tensors up to this many elements stay inline
tokens = partial(torch.ones, dtype=torch.int64)


class Export(NamedTuple):
    """A network and how to call it."""

    model: nn.Module
    inputs: dict[str, Tensor]  # in the order of the arguments of forward()
    outputs: tuple[str, ...] = ("logits",)
    batch_axis: int = 0  # the same for all inputs and outputs


def image_net(name: str, size: int = 224, outputs=("logits",), **options) -> Export:
    """A torchvision network on square RGB images."""
    model = torchvision.models.get_model(name, weights=None, **options)
    return Export(model, {"images": torch.zeros(BATCH, 3, size, size)}, outputs)


class Seq2Seq(nn.Module):
    """nn.Transformer, sequence-first, with embeddings and output projection."""

    def __init__(self, layers: int, length: int, vocab: int, width: int = 512, inner: int = 2048):
        super().__init__()
        self.scale = math.sqrt(width)
        self.src_embedding = nn.Embedding(vocab, width)
        self.tgt_embedding = nn.Embedding(vocab, width)
        self.transformer = nn.Transformer(width, 8, layers, layers, inner, dropout=0.1)
        self.projection = nn.Linear(width, vocab)
        # No buffer: a plain tensor becomes a Constant node, not an initializer.
        self.mask = nn.Transformer.generate_square_subsequent_mask(length)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        src = self.src_embedding(src) * self.scale
        tgt = self.tgt_embedding(tgt) * self.scale
        hidden = self.transformer(src, tgt, tgt_mask=self.mask, tgt_is_causal=False)
        return self.projection(hidden)


def transformer(layers: int = 6, length: int = 64, vocab: int = 32000, **sizes: int) -> Export:
    inputs = {"src": tokens(length, BATCH), "tgt": tokens(length, BATCH)}
    return Export(Seq2Seq(layers, length, vocab, **sizes), inputs, batch_axis=1)


class RecurrentLM(nn.Module):
    """Embedding, stacked recurrent layers with dropout, linear decoder."""

    def __init__(self, cell: type[nn.RNNBase], layers: int, width: int, vocab: int):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        # Separate layers: the exporter refuses the dropout of nn.LSTM in training.
        self.rnn = nn.ModuleList(cell(width, width) for _ in range(layers))
        self.dropout = nn.Dropout(0.5)
        self.decoder = nn.Linear(width, vocab)

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.dropout(self.embedding(ids))
        for layer in self.rnn:
            hidden = self.dropout(layer(hidden)[0])
        return self.decoder(hidden)


def recurrent_lm(cell: type[nn.RNNBase], width: int = 650, vocab: int = 10000) -> Export:
    model = RecurrentLM(cell, 2, width, vocab)
    return Export(model, {"tokens": tokens(35, BATCH)}, batch_axis=1)


def text_net(kind: str, length: int, inputs: str, outputs=("logits",), **options) -> Export:
    """A transformers network on batch-first token sequences."""
    model_class = getattr(transformers, kind)
    options |= {"attn_implementation": "eager", "use_cache": False, "return_dict": False}
    model = model_class(model_class.config_class(**options))
    return Export(model, {name: tokens(BATCH, length) for name in inputs.split()}, outputs)


def bert(layers: int, hidden: int) -> Export:
    sizes = {"hidden_size": hidden, "intermediate_size": 4 * hidden}
    depth = {"num_hidden_layers": layers, "num_attention_heads": hidden // 64}
    inputs = "input_ids attention_mask token_type_ids"
    return text_net("BertForMaskedLM", 128, inputs, **sizes, **depth)


def gpt2_small(length: int = 256) -> Export:
    export = text_net("GPT2LMHeadModel", length, "input_ids")
    # One causal mask of the traced length for all layers, not twelve of 1 MB.
    mask = torch.ones(1, 1, length, length, dtype=torch.bool).tril()
    for block in export.model.transformer.h:
        block.attn.bias = mask
    return export


def t5_small() -> Export:
    inputs = "input_ids attention_mask decoder_input_ids"
    return text_net("T5ForConditionalGeneration", 64, inputs, ("logits", "encoder_hidden"))


def llama_tiny() -> Export:
    sizes = {"hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4}
    export = text_net("LlamaForCausalLM", 64, "input_ids attention_mask", **sizes, **heads)
    # Hide the other arguments: the exporter makes an input of num_logits_to_keep.
    forward = export.model.forward
    export.model.forward = lambda input_ids, mask: forward(input_ids, mask)
    return export


def conv_norm(inputs: int, outputs: int, size: int = 3, stride: int = 1) -> list[nn.Module]:
    padding = size // 2
    return [nn.Conv2d(inputs, outputs, size, stride, padding, bias=False), nn.BatchNorm2d(outputs)]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut, as in He et al. 2015, section 4.2."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        first = conv_norm(inputs, outputs, stride=stride)
        self.body = nn.Sequential(*first, nn.ReLU(), *conv_norm(outputs, outputs))
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Sequential(*([] if same else conv_norm(inputs, outputs, 1, stride)))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def small_image_net(body: list[nn.Module], features: int) -> Export:
    """On 32x32 RGB images, ten classes."""
    model = nn.Sequential(*body, nn.Flatten(), nn.Linear(features, 10))
    return Export(model, {"images": torch.zeros(BATCH, 3, 32, 32)})


def resnet_small(width: int = 32, blocks: int = 2) -> Export:
    """Three stages, each of half the size and twice the channels of the one before."""
    body = [*conv_norm(3, width), nn.ReLU()]
    channels = width
    for stage in range(3):
        for block in range(blocks):
            outputs = width << stage
            body.append(BasicBlock(channels, outputs, 2 if stage > 0 and block == 0 else 1))
            channels = outputs
    return small_image_net([*body, nn.AdaptiveAvgPool2d(1)], channels)


def vgg_small(dense: int = 1024) -> Export:
    """The convolutions of VGG-11 at a quarter of their channels before a head that holds most weights."""
    body, channels = [], 3
    for outputs in (16, 0, 32, 0, 64, 64, 0, 128, 128, 0):
        if outputs == 0:
            body.append(nn.MaxPool2d(2))
        else:
            body += [nn.Conv2d(channels, outputs, 3, padding=1), nn.ReLU()]
            channels = outputs
    head = [nn.Flatten(), nn.Linear(4 * channels, dense), nn.ReLU(), nn.Linear(dense, dense)]
    return small_image_net([*body, *head, nn.ReLU()], dense)


AUX = ("logits", "aux")
AUX2 = ("logits", "aux2", "aux1")
SHIPPED: dict[str, Callable[[], Export]] = {
    "vgg19": partial(image_net, "vgg19", init_weights=False),
    "resnet50": partial(image_net, "resnet50"),
    "resnet101": partial(image_net, "resnet101"),
    "inception_v3": partial(image_net, "inception_v3", 299, AUX, init_weights=False),
    "vit_b16": partial(image_net, "vit_b_16"),
    "transformer": transformer,
    "transformer_2layer": partial(transformer, layers=2),
    "bert_large": partial(bert, layers=24, hidden=1024),
    "gpt2_small": gpt2_small,
    "lstm_lm": partial(recurrent_lm, nn.LSTM),
}

# Small ones whose steps an emulated cluster of two cores runs in about a second: bench/models.
MEASURED: dict[str, Callable[[], Export]] = {
    "resnet_small": resnet_small,
    "vgg_small": vgg_small,
    "transformer_small": partial(
        transformer, layers=2, length=32, vocab=2000, width=256, inner=512
    ),
    "lstm_small": partial(recurrent_lm, nn.LSTM, width=256, vocab=2000),
}

# More networks to try an importer on; not shipped.
PLAIN = """alexnet densenet121 mobilenet_v2 mobilenet_v3_large efficientnet_b0 maxvit_t
    shufflenet_v2_x1_0 squeezenet1_1 regnet_y_400mf convnext_tiny swin_t mnasnet1_0
    resnext50_32x4d wide_resnet50_2"""
DENSE = {"outputs": AUX, "weights_backbone": None, "aux_loss": True}
EXTRA: dict[str, Callable[[], Export]] = {
    **{name: partial(image_net, name) for name in PLAIN.split()},
    "googlenet": partial(image_net, "googlenet", 256, AUX2, init_weights=False),
    "fcn_resnet50": partial(image_net, "fcn_resnet50", **DENSE),
    "deeplabv3_resnet50": partial(image_net, "deeplabv3_resnet50", **DENSE),
    "lraspp": partial(image_net, "lraspp_mobilenet_v3_large", weights_backbone=None),
    "bert_small": partial(bert, layers=4, hidden=512),
    "t5_small": t5_small,
    "llama_tiny": llama_tiny,
    "gru_lm": partial(recurrent_lm, nn.GRU),
}


def trace(export: Export) -> onnx.ModelProto:
    """Export in training form, with a symbolic batch dimension."""
    names = (*export.inputs, *export.outputs)
    with torch.no_grad():
        results = export.model.train()(*export.inputs.values())
    buffer = io.BytesIO()
    torch.onnx.export(
        export.model,
        tuple(export.inputs.values()),
        buffer,
        training=torch.onnx.TrainingMode.TRAINING,
        do_constant_folding=False,
        keep_initializers_as_inputs=False,
        opset_version=17,
        input_names=list(export.inputs),
        output_names=list(export.outputs),
        dynamic_axes={name: {export.batch_axis: "batch"} for name in names},
        dynamo=False,
    )
    model = onnx.load_model_from_string(buffer.getvalue())
    # The exporter invents symbols for static dimensions of some outputs.
    for value, result in zip(model.graph.output, tree_leaves(results), strict=True):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if axis != export.batch_axis:
                dim.dim_value = result.shape[axis]
    # It also forgets training_mode on the Dropout of scaled_dot_product_attention.
    bare = [n for n in model.graph.node if n.op_type == "Dropout" and len(n.input) == 2]
    for node in bare:
        node.input.append("training_mode")
    if bare:
        true = onnx.helper.make_tensor("training_mode", onnx.TensorProto.BOOL, [], [True])
        model.graph.initializer.append(true)
    return model


def fold_recurrent_weights(graph: onnx.GraphProto) -> None:
    """Let LSTM and GRU read W, R and B from initializers, without gate shuffles."""
    producer = {name: node for node in graph.node for name in node.output}
    weights = {tensor.name: tensor for tensor in graph.initializer}
    shuffles = []

    def sources(value: str) -> set[str]:
        if value in weights:
            return {value}
        shuffles.append(producer[value])
        return set().union(*map(sources, producer[value].input))

    for node in graph.node:
        for slot in (1, 2, 3) if node.op_type in ("LSTM", "GRU") else ():
            first, *others = sorted(sources(node.input[slot]), reverse=True)
            tensor = weights[first]
            tensor.dims[0] *= 1 + len(others)
            tensor.dims.insert(0, 1)
            tensor.name = first.replace("bias_ih", "bias")
            node.input[slot] = tensor.name
            for other in others:
                graph.initializer.remove(weights[other])
    for node in shuffles:
        graph.node.remove(node)


def strip(model: onnx.ModelProto, weights: set[str]) -> int:
    """Remove weight data and remarks; return the number of bytes declared."""
    end = 0
    for tensor in model.graph.initializer:
        elements = math.prod(tensor.dims)
        is_float = tensor.data_type == onnx.TensorProto.FLOAT
        if is_float and (tensor.name in weights or elements > INLINE_LIMIT):
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            place = {"location": "weights.bin", "offset": end, "length": 4 * elements}
            for key, value in place.items():
                tensor.external_data.add(key=key, value=str(value))
            end += 4 * elements
    model.ClearField("metadata_props")
    for item in (model.graph, *model.graph.node, *model.graph.initializer):
        item.ClearField("doc_string")
    return end


def write(name: str, build: Callable[[], Export], folder: pathlib.Path) -> None:
    """Export one network and print a summary."""
    torch.manual_seed(0)
    export = build()
    model = trace(export)
    fold_recurrent_weights(model.graph)
    weight_bytes = strip(model, set(export.model.state_dict()))
    data = model.SerializeToString(deterministic=True)
    (folder / f"{name}.onnx").write_bytes(data)
    with tempfile.TemporaryDirectory() as scratch:  # a sparse file poses as weights
        copy = pathlib.Path(scratch, "model.onnx")
        copy.write_bytes(data)
        with copy.with_name("weights.bin").open("wb") as weights:
            weights.truncate(weight_bytes)
        onnx.checker.check_model(copy, full_check=True)
    stored = [t for t in model.graph.initializer if t.external_data]
    count = sum(math.prod(t.dims) for t in stored if ".running_" not in t.name)
    known = sum(parameter.numel() for parameter in export.model.parameters())
    ops = collections.Counter(node.op_type for node in model.graph.node)
    print(f"{name}: {len(data)} bytes, {ops.total()} nodes, {count} of {known} weights")
    print(" ", *(f"{op}:{n}" for op, n in sorted(ops.items())), flush=True)


def main() -> None:
    networks = SHIPPED | MEASURED | EXTRA
    parser = argparse.ArgumentParser(description="Write weightless ONNX models.")
    parser.add_argument("--out", type=pathlib.Path, help="folder; default: models, bench/models")
    parser.add_argument("--only", choices=networks, help="write this network only")
    sets = parser.add_mutually_exclusive_group()
    sets.add_argument("--measured", action="store_true", help="the small networks of bench/models")
    sets.add_argument("--extra", action="store_true", help="networks not shipped")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    chosen = MEASURED if args.measured else EXTRA if args.extra else SHIPPED
    out = args.out or pathlib.Path("bench/models" if args.measured else "models")
    out.mkdir(parents=True, exist_ok=True)
    for name in [args.only] if args.only else chosen:
        write(name, networks[name], out)


if __name__ == "__main__":
    main()
