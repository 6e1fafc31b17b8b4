#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare training with PyTorch: torch_compare.py ESPALIER FOLDER [NETWORK...]

Small networks with fixed weights take the same steps on the same batches in PyTorch and in
`espalier run`: on one device, on three unequal ones, and in double precision on the reference
backend. Compared are the loss of each step and, after the last, that of the evaluation, parameters,
moments and statistics. Files go to FOLDER. Prints the worst differences; exit 1 if one is too
large.
"""

import copy
import json
import pathlib
import re
import subprocess
import sys
import warnings

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_networks import BATCH, CASES, ROWS, STEPS, Case

CLUSTER = """
name: three
types:
  large: {kind: cpu, fp32: 40 GFLOP/s, memory: 1 GiB, memory_bandwidth: 8 GB/s, launch: 1 us}
  middle: {kind: cpu, fp32: 20 GFLOP/s, memory: 1 GiB, memory_bandwidth: 4 GB/s, launch: 2 us}
  small: {kind: cpu, fp32: 10 GFLOP/s, memory: 1 GiB, memory_bandwidth: 2 GB/s, launch: 4 us}
nodes:
  - {name: a, devices: [{type: large}], host: {bandwidth: 10 GB/s, latency: 1 us}}
  - {name: b, devices: [{type: middle}], host: {bandwidth: 10 GB/s, latency: 1 us}}
  - {name: c, devices: [{type: small}], host: {bandwidth: 10 GB/s, latency: 1 us}}
network: {kind: switch, name: ethernet, bandwidth: 1 Gbit/s, latency: 10 us}
"""


# ---- both sides --------------------------------------------------------------------------------


def inputs_of(case: Case, data) -> list[Tensor]:
    inputs = data if case.own_loss else data[:-1]
    return [t.transpose(0, case.batch_axis) for t in inputs]


def loss_of(case: Case, model: nn.Module, data: list[Tensor]) -> Tensor:
    output = model(*inputs_of(case, data))
    labels = data[-1].transpose(0, case.batch_axis)
    if case.own_loss:
        return output
    if labels.is_floating_point():
        return F.mse_loss(output, labels)
    if output.dim() != 4:
        output = output.flatten(0, -2)
        labels = labels.flatten()
    return F.cross_entropy(output, labels, ignore_index=case.ignore)


def train(case: Case, model: nn.Module, data: tuple[Tensor, ...], dtype: torch.dtype):
    """Losses of the steps and the evaluation, and the tensors after them as espalier names them."""
    model = copy.deepcopy(model).to(dtype)
    data = [t.to(dtype) if t.is_floating_point() else t for t in data]
    optimizer = case.optimizer.of(model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, case.optimizer.factor)
    losses = []
    for step in range(STEPS):
        rows = [(step * BATCH + i) % ROWS for i in range(BATCH)]
        optimizer.zero_grad()
        loss = loss_of(case, model, [t[rows] for t in data])
        loss.backward()
        if case.optimizer.clip > 0:
            nn.utils.clip_grad_norm_(model.parameters(), case.optimizer.clip)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        size = BATCH if case.own_loss else ROWS
        batches = zip(*(t.split(size) for t in data))
        losses.append(sum(loss_of(case, model, batch).item() for batch in batches) * size / ROWS)
    tensors = {n: t for n, t in model.state_dict().items() if "num_batches" not in n}
    for name, parameter in model.named_parameters():
        state = optimizer.state[parameter]
        for suffix, key in ("/m", "momentum_buffer"), ("/m", "exp_avg"), ("/v", "exp_avg_sq"):
            if isinstance(state.get(key), Tensor):
                tensors[name + suffix] = state[key]
    if "adam" in case.optimizer.kind:
        tensors["step"] = torch.tensor([STEPS])
    return losses, {name: t.detach().double().flatten() for name, t in tensors.items()}


def export(case: Case, model: nn.Module, data: tuple[Tensor, ...], path: pathlib.Path) -> None:
    """Writes the model. Its running statistics then have seen one batch, in the file and here."""
    inputs = tuple(inputs_of(case, [t[:BATCH] for t in data]))
    names = [f"x{i}" for i in range(len(inputs))]
    torch.onnx.export(
        model,
        inputs,
        str(path),
        training=torch.onnx.TrainingMode.TRAINING,
        do_constant_folding=False,
        opset_version=17,
        input_names=names,
        output_names=["logits"],
        dynamic_axes={name: {case.batch_axis: "batch"} for name in names},
        dynamo=False,
    )


def write_npy(path: pathlib.Path, rows: Tensor) -> None:
    kind = "<f4" if rows.is_floating_point() else "<i8"
    shape = "".join(f"{n}, " for n in rows.shape)
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}"
    start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
    path.write_bytes(start + bytes(rows.contiguous().flatten().view(torch.uint8).tolist()))


def read_checkpoint(path: pathlib.Path) -> dict[str, Tensor]:
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:start]).items():
        if name != "__metadata__":
            first, end = entry["data_offsets"]
            dtype = {"F32": torch.float32, "F64": torch.float64}[entry["dtype"]]
            part = bytearray(data[start + first : start + end])
            tensors[name] = torch.frombuffer(part, dtype=dtype).double()
    return tensors


def run(espalier: str, folder: pathlib.Path, case: Case, strategy: str, *options: str):
    """What train() gives, from `espalier run`."""

    def call(*words) -> None:
        command = [espalier, *map(str, words), "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{words[0]} ends with {done.returncode}: {done.stderr}")

    plan, log, checkpoint = (folder / name for name in ("plan.json", "log", "checkpoint"))
    log.unlink(missing_ok=True)
    call("plan", folder / "model.onnx", "-c", folder / "three.yaml", "--batch", BATCH, "-o", plan,
         "--strategy", strategy, *case.optimizer.options(), *case.options)  # fmt: skip
    data = ",".join(f"{path.stem}={path}" for path in folder.glob("*.npy"))
    call("run", plan, "--data", data, "--eval-data", data, "--in-order", "--steps", STEPS,
         "--log", log, "--checkpoint", checkpoint,
         *case.optimizer.schedule(), *options)  # fmt: skip
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line["loss"] for line in lines] + [lines[-1]["eval_loss"]], read_checkpoint(checkpoint)


# ---- comparison --------------------------------------------------------------------------------


def parts(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """With the biases of queries, keys (no gradient) and values apart."""
    apart = {}
    for name, tensor in tensors.items():
        if "in_proj_bias" in name:
            apart |= {f"{kind} {name}": part for kind, part in zip("qkv", tensor.chunk(3))}
        else:
            apart[name] = tensor
    return apart


def compare(case: Case, ours, theirs, loss_limit: float, limit: float) -> bool:
    """Differences of losses, and of tensors against their norm where they have a gradient."""
    if ours[1].keys() != theirs[1].keys():
        print("different tensors:", *sorted(ours[1].keys() ^ theirs[1].keys()))
        return False
    losses = [abs(a - b) / abs(b) for a, b in zip(ours[0], theirs[0], strict=True)]
    against, zero = {"": 0.0}, [0.0]
    theirs_parts = parts(theirs[1])
    for name, a in parts(ours[1]).items():
        b = theirs_parts[name]
        difference = (a - b).norm().item()
        if re.search(case.zero, name):
            zero.append(difference)
        else:
            against[name] = difference / max(b.norm().item(), 1e-12)
    place = max(against, key=against.get)
    print(f"loss {max(losses):.1e}, tensors {against[place]:.1e} ({place}), ", end="")
    print(f"without gradient {max(zero):.1e}")
    every = [loss / loss_limit for loss in losses]
    every += [difference / limit for difference in (*against.values(), *zero)]
    return all(part <= 1 for part in every)  # NaN is not


def check(espalier: str, folder: pathlib.Path, name: str, case: Case) -> bool:
    torch.manual_seed(1)
    data = case.data()
    model = case.model().train()
    export(case, model, data, folder / "model.onnx")
    for old in folder.glob("*.npy"):
        old.unlink()
    for i, rows in enumerate(data):
        labels = i + 1 == len(data) and not case.own_loss
        write_npy(folder / ("labels.npy" if labels else f"x{i}.npy"), rows)
    types = torch.float32, torch.float64
    reference = {dtype: train(case, model, data, dtype) for dtype in types}
    good = True
    for strategy in ("single", *case.strategies, "double"):
        double = strategy == "double"
        options = ("--backend", "reference", "--double") if double else ()
        dtype, limits = (torch.float64, (1e-6, 1e-6)) if double else (torch.float32, (1e-5, 1e-4))
        print(f"{name} {strategy}: ", end="", flush=True)
        try:
            ours = run(espalier, folder, case, "single" if double else strategy, *options)
            passed = compare(case, ours, reference[dtype], *limits)
        except RuntimeError as error:
            print(error)
            passed = False
        if not passed:
            print(f"failed: {name} {strategy}")
        good = good and passed
    return good


def main() -> int:
    espalier, folder, *names = sys.argv[1:]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    folder = pathlib.Path(folder)
    (folder / "three.yaml").write_text(CLUSTER)
    good = [check(espalier, folder, name, CASES[name]) for name in names or CASES]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
