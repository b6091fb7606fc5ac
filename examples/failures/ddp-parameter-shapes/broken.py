"""Each rank builds its model for the classes that its own data have.

srunbook simulate --ntasks-per-node 2 --no-kill-on-bad-exit -- python broken.py
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

labels = torch.tensor([0, 1, 2] if rank == 0 else [0, 1, 3])  # this rank's share of the data
classes = int(labels.max()) + 1  # the mistake: 3 on rank 0, 4 on rank 1
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, classes))
