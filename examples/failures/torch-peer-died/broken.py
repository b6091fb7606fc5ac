"""Rank 1 is killed, and the message comes from rank 0.

srunbook simulate --nodes 2 --ntasks-per-node 1 --no-kill-on-bad-exit -- python broken.py
"""

from __future__ import annotations

import os
import signal

import torch
import torch.distributed as dist

rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

for step in range(5):
    if rank == 1 and step == 3:
        os.kill(os.getpid(), signal.SIGKILL)  # as the system does when memory runs out
    dist.all_reduce(torch.ones(1))
    print(f"rank {rank}: step {step}", flush=True)
