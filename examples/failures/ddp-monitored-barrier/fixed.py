"""Rank 1 prepares for longer than the other, and the barrier has the time for it.

srunbook simulate --ntasks-per-node 2 -- python fixed.py
"""

from __future__ import annotations

import os
import time
from datetime import timedelta

import torch.distributed as dist

rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

if rank == 1:
    time.sleep(1)  # say, a download that no other rank makes
dist.monitored_barrier(timeout=timedelta(minutes=30), wait_all_ranks=True)
print(f"rank {rank}: all ranks are here")
dist.destroy_process_group()
