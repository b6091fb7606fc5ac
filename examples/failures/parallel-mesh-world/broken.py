"""A mesh for four ranks, in a job of two.

srunbook simulate --ntasks-per-node 2 --no-kill-on-bad-exit -- python broken.py
"""

from __future__ import annotations

import os

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))  # the mistake: numbers typed by hand
print(f"rank {rank}: {tuple(mesh.shape)}")
