"""Rank 0 alone asks for the state of a sharded model.

srunbook simulate --ntasks-per-node 2 --no-kill-on-bad-exit -- python broken.py
"""

from __future__ import annotations

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

rank = int(os.environ["SLURM_PROCID"])
address = f"tcp://127.0.0.1:{25000 + int(os.environ['SLURM_JOB_ID']) % 7000}"
short = timedelta(seconds=3)  # in place of 30 minutes
dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2, timeout=short)

model = fully_shard(torch.nn.Linear(8, 8))
if rank == 0:  # the mistake: each rank has a part of each parameter
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    torch.save(whole, "model.pt")
time.sleep(6)  # rank 1 reads its next batch
