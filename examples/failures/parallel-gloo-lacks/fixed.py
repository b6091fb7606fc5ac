"""Gradients are divided before a plain sum.

srunbook simulate --ntasks-per-node 2 -- python fixed.py
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or its threads never end
from torch.distributed.fsdp import fully_shard

rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

model = fully_shard(torch.nn.Linear(8, 8))
model.set_gradient_divide_factor(3.0)
model.set_force_sum_reduction_for_comms(True)
model(torch.ones(2, 8)).sum().backward()
print(f"rank {rank}: gradient {model.bias.grad.full_tensor()[0].item():.4f}")  # 2 rows on each of 2 ranks, over 3
dist.destroy_process_group()
