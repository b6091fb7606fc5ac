"""Rank 1 waits for a lock before its first line, and rank 0 waits for rank 1.

srunbook simulate --nodes 2 --ntasks-per-node 1 -- python broken.py
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import torch.distributed as dist

signal.alarm(3)  # the time limit of the job
rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
lock = Path(f"cache-of-rank-{rank}.lock")
if rank == 1:
    lock.touch()  # left behind by a job that was killed


def read_data() -> None:
    while lock.exists():
        time.sleep(0.1)


read_data()
print(f"rank {rank}: meets the others", flush=True)
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
print(f"rank {rank}: all are here", flush=True)
