"""The layers are sharded first, then the model.

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

model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))
for layer in model:
    fully_shard(layer)
fully_shard(model)  # last: what no layer has taken
model(torch.ones(1, 64)).sum().backward()
print(f"rank {rank}: {[type(parameter).__name__ for parameter in model[0].parameters()]}")
dist.destroy_process_group()
