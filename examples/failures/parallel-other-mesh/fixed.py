"""The ranks save a checkpoint that any layout can read.

srunbook simulate --ntasks-per-node 2 -- python fixed.py
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.distributed.nn  # before init_process_group, or its threads never end
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

model = fully_shard(torch.nn.Linear(8, 8), mesh=init_device_mesh("cpu", (2,)))
dcp.save(model.state_dict(), checkpoint_id="checkpoint")  # all ranks, into one folder
saved = model.weight.full_tensor()

replicated = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))
model = fully_shard(torch.nn.Linear(8, 8), mesh=replicated)
state = model.state_dict()
dcp.load(state, checkpoint_id="checkpoint")  # each rank reads what it now needs
model.load_state_dict(state)
print(f"rank {rank}: the same weights: {torch.equal(saved, model.weight.full_tensor())}")
dist.destroy_process_group()
