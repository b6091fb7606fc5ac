"""Each rank saves its own part, and another layout is to read the parts.

srunbook simulate --ntasks-per-node 2 --no-kill-on-bad-exit -- python broken.py
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

model = fully_shard(torch.nn.Linear(8, 8), mesh=init_device_mesh("cpu", (2,)))
torch.save(model.state_dict(), f"model.{rank}.pt")  # the mistake: a part, and the mesh that it belongs to

replicated = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))
model = fully_shard(torch.nn.Linear(8, 8), mesh=replicated)
model.load_state_dict(torch.load(f"model.{rank}.pt"))
