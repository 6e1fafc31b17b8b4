#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The training step of PyTorch's DistributedDataParallel (gloo) among the ranks of an MPI job.

    tools/emulate_cluster clusters/emulated4.yaml -- env MASTER_ADDR=10.77.0.1 \\
        GLOO_SOCKET_IFNAME=e0 python3 tools/bench_ddp.py resnet_small --batch 64

Trains a network of tools/export_models.py, each rank with an equal part of the batch and one thread.
Rank 0 prints a line of JSON: the mean time of a step after the first few. Needs torch, torchvision
and transformers.
"""

import argparse
import json
import os
import time
import warnings

import torch
import torch.distributed as dist
from export_models import EXTRA, MEASURED, SHIPPED, Export
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

NETWORKS = SHIPPED | MEASURED | EXTRA
OPTIMIZERS = {
    "sgd": lambda weights: torch.optim.SGD(weights, lr=0.01),
    "momentum": lambda weights: torch.optim.SGD(weights, lr=0.01, momentum=0.9),
    "adam": lambda weights: torch.optim.Adam(weights, lr=0.001),
}
WARM_UP = 3  # steps that do not count


def inputs_of(export: Export, samples: int) -> list[Tensor]:
    inputs = []
    for example in export.inputs.values():
        shape = list(example.shape)
        shape[export.batch_axis] = samples
        floating = example.dtype.is_floating_point
        inputs.append(torch.rand(shape) if floating else torch.randint(0, 2, shape))
    return inputs


def step_time(export: Export, samples: int, optimizer: str, steps: int) -> float:
    """Mean seconds of a step, which ends when all ranks have ended it."""
    model = DistributedDataParallel(export.model.train())
    update = OPTIMIZERS[optimizer](model.parameters())
    inputs, start = inputs_of(export, samples), 0.0
    for step in range(WARM_UP + steps):
        if step == WARM_UP:
            dist.barrier()
            start = time.perf_counter()
        logits = model(*inputs).flatten(0, -2)
        loss = cross_entropy(logits, torch.ones(len(logits), dtype=torch.int64))
        update.zero_grad()
        loss.backward()
        update.step()
    dist.barrier()
    return (time.perf_counter() - start) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description="Time a step of DistributedDataParallel.")
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("--batch", type=int, required=True, help="samples of all ranks")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd")
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    rank, ranks = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
    if args.batch % ranks:
        parser.error(f"--batch {args.batch} has no equal parts for {ranks} ranks")
    os.environ.setdefault("MASTER_PORT", "29500")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    seconds = step_time(NETWORKS[args.network](), args.batch // ranks, args.optimizer, args.steps)
    if rank == 0:
        figures = {"model": args.network, "batch": args.batch, "ranks": ranks}
        print(json.dumps(figures | {"step_s": seconds, "steps": args.steps}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
