"""NCCL where there are GPUs, gloo where there are none; and it says which.

srunbook simulate --nodes 1 --ntasks-per-node 1 -- python fixed.py
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
backend = "nccl" if torch.cuda.is_available() else "gloo"
dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}, backend {dist.get_backend()}")
dist.destroy_process_group()
