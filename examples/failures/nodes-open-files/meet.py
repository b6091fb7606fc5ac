"""Let all ranks meet, add up their numbers, and count the open files of rank 0."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

rank, ranks = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
dist.init_process_group("gloo", rank=rank, world_size=ranks, timeout=timedelta(seconds=20))
total = torch.tensor([rank])
dist.all_reduce(total)
if rank == 0:
    files = len(list(Path("/proc/self/fd").iterdir()))
    print(f"{ranks} ranks, the sum is {total.item()}; rank 0 has {files} open files")
dist.destroy_process_group()
