"""All ranks gather the state of a sharded model, and rank 0 writes it.

srunbook simulate --ntasks-per-node 2 -- python fixed.py
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or its threads never end
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

model = fully_shard(torch.nn.Linear(8, 8))
whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))  # all ranks
if rank == 0:
    torch.save(whole, "model.pt")
    print("saved:", {name: tuple(value.shape) for name, value in whole.items()})
dist.destroy_process_group()
