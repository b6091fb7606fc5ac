"""Rank 0 writes the checkpoint, and the others wait until it is there.

srunbook simulate --ntasks-per-node 2 -- python fixed.py
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
if rank == 0:
    torch.save(model.state_dict(), "model.pt.tmp")
    Path("model.pt.tmp").replace("model.pt")
dist.barrier()
print(f"rank {rank}: model.pt is there: {Path('model.pt').exists()}")
dist.destroy_process_group()
