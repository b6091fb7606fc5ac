"""Gradients are divided by a number of one's own: NCCL does it while it sums, gloo cannot.

srunbook simulate --ntasks-per-node 2 --no-kill-on-bad-exit -- python broken.py
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

model = fully_shard(torch.nn.Linear(8, 8))
model.set_gradient_divide_factor(3.0)
model(torch.ones(2, 8)).sum().backward()
