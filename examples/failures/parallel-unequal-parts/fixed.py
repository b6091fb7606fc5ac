"""The sequence is padded to six characters, three for each rank.

srunbook simulate --ntasks-per-node 2 -- python fixed.py
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or its threads never end
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
plan = {
    "0": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "1": ColwiseParallel(input_layouts=Shard(1)),
}
parallelize_module(model, init_device_mesh("cpu", (2,)), plan)
x = torch.ones(1, 5, 8)
x = torch.nn.functional.pad(x, (0, 0, 0, -x.size(1) % dist.get_world_size()))  # zeros at the end of the sequence
print(f"rank {rank}: {model(x).size(1)} characters")
dist.destroy_process_group()
