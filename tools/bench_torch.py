#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare the training step of one device with PyTorch's, on one core, in one run.

    pip install torch==2.5.1 torchvision==0.20.1 transformers==4.46.3 onnx==1.17.0
    ninja -C build benches && python tools/bench_torch.py --out build/bench_torch.json

Both train the same networks (those of tools/export_models.py) with the same batch, softmax
cross-entropy and SGD; PyTorch eagerly, with one thread. The fastest of the steps after the first
counts on both sides. The ratio is the time of espalier over that of PyTorch.
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import tempfile
import time
import warnings

import torch
import transformers
from export_models import EXTRA, SHIPPED, Export, write
from torch import Tensor
from torch.nn.functional import cross_entropy

# name -> samples of a step
NETWORKS = {"resnet50": 8, "bert_small": 8, "lstm_lm": 20}


def batch_of(export: Export, samples: int) -> list[Tensor]:
    """Inputs of that many samples."""
    inputs = []
    for example in export.inputs.values():
        shape = list(example.shape)
        shape[export.batch_axis] = samples
        inputs.append(torch.ones(shape, dtype=example.dtype))
    return inputs


def torch_step_ms(name: str, samples: int, steps: int) -> float:
    torch.manual_seed(0)
    export = (SHIPPED | EXTRA)[name]()
    model = export.model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = batch_of(export, samples)
    best = math.inf
    for step in range(steps + 1):
        start = time.perf_counter()
        result = model(*inputs)
        logits = result if isinstance(result, Tensor) else result[0]
        logits = logits.flatten(0, -2)
        loss = cross_entropy(logits, torch.ones(len(logits), dtype=torch.int64))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step > 0:
            best = min(best, time.perf_counter() - start)
    return best * 1e3


def espalier_step(bench: str, model: pathlib.Path, samples: int, steps: int) -> dict[str, float]:
    """Milliseconds of the step ("") and of the kinds of its ops."""
    with tempfile.NamedTemporaryFile("r") as out:
        command = [bench, "--out", out.name, "--steps", str(steps), "--model", str(model)]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        command += ["--batch", str(samples)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        figures = json.loads(out.readline())
    prefix = f"exec_{model.stem}_b{samples}_"
    return {key.removeprefix(prefix).removesuffix("ms").rstrip("_"): v for key, v in figures.items()}


def compare(name: str, args: argparse.Namespace) -> dict:
    samples = NETWORKS[name]
    with tempfile.TemporaryDirectory() as folder:
        write(name, (SHIPPED | EXTRA)[name], pathlib.Path(folder))
        kinds = espalier_step(args.bench, pathlib.Path(folder, f"{name}.onnx"), samples, args.steps)
    ours = kinds.pop("")
    theirs = torch_step_ms(name, samples, args.steps)
    print(f"{name}, batch {samples}: espalier {ours:.1f} ms, torch {theirs:.1f} ms, "
          f"ratio {ours / theirs:.2f}", flush=True)
    for kind, ms in list(kinds.items())[:6]:
        print(f"  {kind:16s} {ms:9.1f} ms")
    return {"batch": samples, "espalier_ms": ours, "torch_ms": theirs, "kinds_ms": kinds}


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare training steps with PyTorch.")
    parser.add_argument("--bench", default="build/bench_exec", help="the bench program")
    parser.add_argument("--out", type=pathlib.Path, help="JSON file")
    parser.add_argument("--only", choices=NETWORKS, help="this network only")
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    results = {name: compare(name, args) for name in ([args.only] if args.only else NETWORKS)}
    if args.out:
        args.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
