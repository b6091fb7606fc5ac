"""The model within DDP is saved; a checkpoint that has the prefix is loaded without it.

srunbook simulate --ntasks-per-node 2 -- python fixed.py
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or its threads never end
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present

rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
if rank == 0:
    torch.save(model.module.state_dict(), "model.pt")
    torch.nn.Linear(4, 1).load_state_dict(torch.load("model.pt"))

    old = model.state_dict()  # as an older checkpoint has it
    consume_prefix_in_state_dict_if_present(old, "module.")
    print(torch.nn.Linear(4, 1).load_state_dict(old))
dist.destroy_process_group()
