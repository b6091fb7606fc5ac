"""The log tells which rank is missing and where it is, and a lock that is too old is taken away.

srunbook simulate --nodes 2 --ntasks-per-node 1 -- python fixed.py
"""

from __future__ import annotations

import faulthandler
import os
import time
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

rank = int(os.environ["SLURM_PROCID"])
print(f"rank {rank}/2 start host={os.environ['SLURMD_NODENAME']}", flush=True)  # before all else
faulthandler.dump_traceback_later(1)  # minutes in your program: where each rank is then
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
lock = Path(f"cache-of-rank-{rank}.lock")
if rank == 1:
    lock.touch()  # left behind by a job that was killed


def read_data() -> None:
    while lock.exists():
        if time.time() - lock.stat().st_mtime > 3:  # an hour in your program: longer than any rank holds it
            lock.unlink()
        time.sleep(0.1)


read_data()
print(f"rank {rank}: meets the others", flush=True)
limit = timedelta(minutes=10)
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2, timeout=limit)
faulthandler.cancel_dump_traceback_later()
print(f"rank {rank}: all are here", flush=True)
dist.destroy_process_group()
