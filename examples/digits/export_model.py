#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write digits.onnx: a small convolutional network for 8x8 images, with initial weights.

The file was made with Python 3.11 and:

    pip install torch==2.5.1 onnx==1.17.0
    python examples/digits/export_model.py
"""

import io
import pathlib

import onnx
import torch
from torch import nn


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def main() -> None:
    buffer = io.BytesIO()
    torch.onnx.export(
        network(),
        torch.zeros(2, 1, 8, 8),
        buffer,
        training=torch.onnx.TrainingMode.TRAINING,
        do_constant_folding=False,
        opset_version=17,
        input_names=["images"],
        output_names=["logits"],
        dynamic_axes={"images": {0: "batch"}, "logits": {0: "batch"}},
        dynamo=False,
    )
    model = onnx.load_model_from_string(buffer.getvalue())
    model.ClearField("metadata_props")
    for item in (model.graph, *model.graph.node):
        item.ClearField("doc_string")
    onnx.checker.check_model(model, full_check=True)
    data = model.SerializeToString(deterministic=True)
    path = pathlib.Path(__file__).with_name("digits.onnx")
    path.write_bytes(data)
    print(f"{path}: {len(data)} bytes")


if __name__ == "__main__":
    main()
