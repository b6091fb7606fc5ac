"""Rank 1 is late, and monitored_barrier says so.

srunbook simulate --ntasks-per-node 2 --no-kill-on-bad-exit -- python broken.py
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
    time.sleep(4)  # say, a download that no other rank makes
    raise SystemExit  # and no barrier
dist.monitored_barrier(timeout=timedelta(seconds=2))
