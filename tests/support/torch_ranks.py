"""Meet the other ranks over gloo, add up their numbers, and say so: the least that a launcher of torch can start."""

from __future__ import annotations

import os
import socket

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
print(f"rank {rank}/{world_size} start host={socket.gethostname()} local_rank={os.environ['LOCAL_RANK']}", flush=True)
total = torch.tensor(rank + 1)
dist.all_reduce(total)
print(f"rank {rank}/{world_size} end steps=1 sum={int(total)}", flush=True)
dist.destroy_process_group()
