"""Trains until rank 2 waits for data that never come, and the other ranks wait for rank 2."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or its threads never end
from stuck import watch
from torch.nn.parallel import DistributedDataParallel

rank, world, job = (int(os.environ[name]) for name in ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID"))


def load(step: int) -> torch.Tensor:
    """Return the rows of a step."""
    if rank == 2 and step == 5:
        time.sleep(3600)  # the file server does not answer
    return torch.randn(32, 8)


print(f"rank {rank}/{world} start host={os.environ['SLURMD_NODENAME']} backend=gloo", flush=True)
dist.init_process_group("gloo", rank=rank, world_size=world)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
stepped = watch(rank, Path(f"dumps-{job}"), seconds=5)

for step in range(100):
    optimizer.zero_grad()
    loss = model(load(step)).square().mean()
    loss.backward()
    optimizer.step()
    stepped()
    if rank == 0:
        print(f"step {step} loss {loss:.3f}", flush=True)
