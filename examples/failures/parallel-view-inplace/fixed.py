"""A sharded block returns a new tensor.

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


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layer(x)


model = torch.nn.Sequential(Block(), Block())
for block in model:
    fully_shard(block)
fully_shard(model)
model(torch.ones(2, 8)).sum().backward()
print(f"rank {rank}: gradient of {tuple(model[0].layer.weight.grad.shape)}")
dist.destroy_process_group()
