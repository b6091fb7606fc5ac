"""Rank 0 has five batches, rank 1 has seven, and rank 0 answers until both are done.

srunbook simulate --nodes 2 --ntasks-per-node 1 -- python fixed.py
"""

from __future__ import annotations

import os
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or its threads never end
from torch.distributed.algorithms.join import Join

rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group(
    "gloo",
    init_method=f"tcp://127.0.0.1:{port}",
    rank=rank,
    world_size=2,
    timeout=timedelta(seconds=60),
)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))

# Better still: batches of one number everywhere, by DistributedSampler(..., drop_last=True).
with Join([model]):
    for _ in range(5 if rank == 0 else 7):
        model.zero_grad()
        model(torch.ones(1, 1)).sum().backward()
print(f"rank {rank} has finished its batches", flush=True)

right = torch.tensor([1.0 if rank == 0 else 3.0])
dist.all_reduce(right)
print(f"rank {rank}: the sum is {right.item():.1f}", flush=True)
dist.barrier()  # no rank leaves while another still needs rank 0
dist.destroy_process_group()
