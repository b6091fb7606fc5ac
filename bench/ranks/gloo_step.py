"""One rank of bench/gloo_scaling.py: times steps of DDP and prints its samples as one line of JSON.

Started by srun on a cluster whose nodes have equal shares of a CPU and links of equal rate, with
examples/gloo_ddp/full in PYTHONPATH.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group: imported later, it keeps the group alive
from torch import nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel


class Hook:
    """What happens with a bucket of gradients, and when it was ready.

    Modes: `overlap` is what DDP does; `blocking` waits for each bucket before the backward pass goes on, as with
    overlap switched off; `none` sends nothing.
    """

    def __init__(self) -> None:
        self.mode = "overlap"
        self.start = 0.0
        self.ready: list[float] = []
        self.sizes: list[int] = []

    def reduce(self, state, bucket):  # noqa: ANN001, ANN201, ARG002 - torch wants no annotations that are strings
        """Reduce a bucket, by the mode."""
        buffer = bucket.buffer()
        self.ready.append(time.perf_counter() - self.start)
        self.sizes.append(buffer.numel())
        if self.mode == "overlap":
            return dist.all_reduce(buffer, async_op=True).get_future().then(lambda done: done.value()[0])
        if self.mode == "blocking":
            dist.all_reduce(buffer)
        future: Future = Future()
        future.set_result(buffer)
        return future


def traffic_model(batch: int, hidden: int) -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    """Return the forecaster of the guide, and its loss on random speeds."""
    from traffic_data import STEPS, TrafficNet, losses

    usual = 40 + 20 * torch.rand(2 * 288, 24)
    past, truth = (70 * torch.rand(batch, STEPS, 24) for _ in range(2))
    times = torch.randint(2 * 288, (batch, STEPS))
    return TrafficNet(usual, hidden), lambda model: losses(model(past, times), truth, usual.std()).mean()


def wide_model(batch: int, hidden: int) -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    """Make eight equal layers: each fills a bucket of its own."""
    layers = [part for _ in range(8) for part in (nn.Linear(hidden, hidden, bias=False), nn.Tanh())]
    data = torch.randn(batch, hidden)
    return nn.Sequential(*layers), lambda model: model(data).square().mean()


def main() -> None:
    """Time steps in all modes, in turn, and each bucket's all-reduce by itself."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=("traffic", "wide"), default="traffic")
    parser.add_argument("--batch", type=int, required=True, help="of this rank")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--modes", default="overlap")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(minutes=5))
    model, loss = {"traffic": traffic_model, "wide": wide_model}[options.model](options.batch, options.hidden)
    hook = Hook()
    # Buckets of 1 MiB first and then of one layer each: without the limit, all layers would be one bucket.
    ddp = DistributedDataParallel(model, bucket_cap_mb=4 if options.model == "wide" else None)
    ddp.register_comm_hook(None, hook.reduce)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(mode: str) -> tuple[float, float]:
        dist.barrier()
        hook.mode, hook.ready, hook.sizes, hook.start = mode, [], [], time.perf_counter()
        value = loss(ddp)
        forward = time.perf_counter() - hook.start
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        return time.perf_counter() - hook.start, forward

    def reduce_alone(size: int) -> float:
        buffer = torch.ones(size)
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(buffer)
        return time.perf_counter() - start

    modes = options.modes.split(",")
    for mode in ["overlap", *modes]:  # DDP forms its buckets anew after the first step
        step(mode)
    samples: dict[str, list[float]] = {f"{mode}_s": [] for mode in modes}
    forwards, readies, reduces = [], [], []
    for _ in range(options.rounds):
        for mode in modes:
            wall, forward = step(mode)
            samples[f"{mode}_s"].append(wall)
            if mode == "none":
                forwards.append(forward)
                readies.append(list(hook.ready))
        if "none" in modes:
            reduces.append([reduce_alone(size) for size in hook.sizes])

    def medians(rows: list[list[float]]) -> list[float]:
        return [statistics.median(column) for column in zip(*rows, strict=True)]

    found = {name: statistics.median(values) for name, values in samples.items()}
    found |= {"gradient_bytes": float(4 * sum(hook.sizes)), "buckets": float(len(hook.sizes))}
    content = {"rank": rank, "samples": found, "ready": medians(readies), "all_reduce": medians(reduces)}
    if forwards:
        content["forward"] = statistics.median(forwards)
    sys.stdout.write("sample " + json.dumps(content) + "\n")


if __name__ == "__main__":
    main()  # which frees the model on return, before the group is destroyed
    dist.destroy_process_group()
