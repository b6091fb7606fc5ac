"""The program expects variables of torchrun, and srun starts it.

srunbook simulate --ntasks-per-node 2 -- python broken.py
"""

from __future__ import annotations

import os

import torch.distributed as dist

rank = int(os.environ.get("RANK", 0))  # the mistake: srun does not set it, and the default is a valid rank
world_size = int(os.environ.get("WORLD_SIZE", 1))
if world_size > 1:
    dist.init_process_group("gloo")
print(f"rank {rank} of {world_size} trains on all data and writes model.pt")
