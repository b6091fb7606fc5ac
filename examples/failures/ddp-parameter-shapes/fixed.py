"""The ranks agree on the number of classes before they build the model.

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

labels = torch.tensor([0, 1, 2] if rank == 0 else [0, 1, 3])  # this rank's share of the data
classes = labels.max() + 1
dist.all_reduce(classes, op=dist.ReduceOp.MAX)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, int(classes)))
print(f"rank {rank}: {int(classes)} classes")
dist.destroy_process_group()
