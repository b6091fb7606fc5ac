"""All processes compute the same port from the job's id.

srunbook simulate --nodes 2 --ntasks-per-node 1 -- python fixed.py
"""

from __future__ import annotations

import os
from datetime import timedelta

import torch.distributed as dist

port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group(
    "gloo",
    init_method=f"tcp://127.0.0.1:{port}",
    rank=int(os.environ["SLURM_PROCID"]),
    world_size=int(os.environ["SLURM_NTASKS"]),
    timeout=timedelta(minutes=2),  # long enough for the slowest node to start Python
)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}")
dist.barrier()  # no rank leaves while another still needs rank 0
dist.destroy_process_group()
