"""Each layer is a group of its own, gathered when it runs and let go after it.

srunbook simulate --ntasks-per-node 2 -- python fixed.py
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or its threads never end
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)  # each thread takes address space, which is limited below
rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

with torch.device("meta"):
    model = torch.nn.Sequential(*(torch.nn.Linear(3072, 3072, bias=False) for _ in range(8)))  # of 36 MiB each
for layer in model:
    fully_shard(layer)
fully_shard(model)
model.to_empty(device="cpu")
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 250 * 2**20, -1))  # in place of a GPU with little left
with torch.no_grad():
    print(f"rank {rank}: output of {tuple(model(torch.ones(1, 3072)).shape)}")
dist.destroy_process_group()
