"""The checkpoint of a model in DDP is loaded into the model alone.

srunbook simulate --ntasks-per-node 2 --no-kill-on-bad-exit -- python broken.py
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
if rank == 0:
    torch.save(model.state_dict(), "model.pt")  # the mistake: names of the wrapper, not of the model
    torch.nn.Linear(4, 1).load_state_dict(torch.load("model.pt"))
