"""SyncBatchNorm is tried on CPUs.

srunbook simulate --ntasks-per-node 2 --no-kill-on-bad-exit -- python broken.py
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)  # the mistake: also without a GPU
model = torch.nn.parallel.DistributedDataParallel(model)
