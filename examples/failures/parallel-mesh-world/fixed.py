"""The shape of the mesh follows from the job.

srunbook simulate --ntasks-per-node 2 -- python fixed.py
"""

from __future__ import annotations

import os
import sys

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

shard = int(os.environ["SLURM_NTASKS_PER_NODE"])  # the ranks of a node; torchrun calls it LOCAL_WORLD_SIZE
replicate, left = divmod(dist.get_world_size(), shard)
if left:
    sys.exit(f"error: {dist.get_world_size()} ranks do not divide into groups of {shard}")
mesh = init_device_mesh("cpu", (replicate, shard), mesh_dim_names=("replicate", "shard"))
print(f"rank {rank}: {tuple(mesh.shape)}")
