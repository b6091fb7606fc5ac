"""Joins two ranks and adds up their numbers. The job scripts beside it start it."""

from __future__ import annotations

import os
import socket
from datetime import timedelta

import torch
import torch.distributed as dist

print(f"{socket.gethostname()} is known here as {socket.gethostbyname(socket.gethostname())}")
rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=20))
total = torch.tensor(rank + 1)
dist.all_reduce(total)
print(f"the sum is {total}")
dist.barrier()  # no rank leaves while another still needs rank 0
dist.destroy_process_group()
