"""A layer that takes no part is frozen before DDP sees it.

srunbook simulate --ntasks-per-node 2 -- python fixed.py
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or its threads never end

rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

layers = torch.nn.ModuleDict({"used": torch.nn.Linear(4, 1), "unused": torch.nn.Linear(4, 1)})
layers.forward = lambda x: layers["used"](x)
layers["unused"].requires_grad_(False)  # or delete it
model = torch.nn.parallel.DistributedDataParallel(layers)
for step in range(2):
    model(torch.ones(2, 4)).sum().backward()
    print(f"rank {rank}: step {step} is done")
dist.destroy_process_group()
