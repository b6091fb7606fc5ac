"""The model is sharded before its layers.

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

model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))
fully_shard(model)  # the mistake: this takes the parameters of all layers
for layer in model:
    fully_shard(layer)
