"""A mask that each rank made by itself meets a tensor that all ranks share.

srunbook simulate --ntasks-per-node 2 --no-kill-on-bad-exit -- python broken.py
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

mesh = init_device_mesh("cpu", (2,))
y = DTensor.from_local(torch.ones(1, 2), mesh, [Shard(1)])  # as a layer split by columns gives it
mask = torch.tensor([1.0, 0.0, 1.0, 0.0])
print(f"rank {rank}:", (y * mask).full_tensor().tolist())  # the mistake: a DTensor times a Tensor
