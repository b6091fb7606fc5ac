"""Rank 1 asks for too much memory, and rank 0 loses its connection to it.

srunbook simulate --nodes 2 --ntasks-per-node 1 --no-kill-on-bad-exit -- python train.py
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
print(f"rank {rank}/{world} start host={os.environ['SLURMD_NODENAME']} backend=gloo", flush=True)
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)

for step in range(5):
    if rank == 1 and step == 3:
        torch.empty(2**48)  # a petabyte
    dist.all_reduce(torch.ones(1))
    print(f"step {step}", flush=True)
