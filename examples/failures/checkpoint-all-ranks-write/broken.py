"""All ranks write one checkpoint under one temporary name.

srunbook simulate --ntasks-per-node 2 --no-kill-on-bad-exit -- python broken.py
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
import torch.distributed as dist

rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

model = torch.nn.Linear(4, 1)
torch.save(model.state_dict(), "model.pt.tmp")  # the mistake: on every rank
dist.barrier()  # so that the two meet in each run; without it, in some
Path("model.pt.tmp").replace("model.pt")
