"""The mask becomes a DTensor on the same mesh: whole on each rank.

srunbook simulate --ntasks-per-node 2 -- python fixed.py
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or its threads never end
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

mesh = init_device_mesh("cpu", (2,))
y = DTensor.from_local(torch.ones(1, 2), mesh, [Shard(1)])  # as a layer split by columns gives it
mask = torch.tensor([1.0, 0.0, 1.0, 0.0])
mask = DTensor.from_local(mask, mesh, [Replicate()])  # the same values on all ranks: nothing is sent
print(f"rank {rank}:", (y * mask).full_tensor().tolist())
dist.destroy_process_group()
