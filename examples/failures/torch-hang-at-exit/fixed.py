"""Two ranks on one CPU free the model before its group.

srunbook simulate --ntasks-per-node 2 -- python fixed.py
"""

from __future__ import annotations

import faulthandler
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)


def train_and_leave() -> None:
    group = dist.new_group()
    model = DistributedDataParallel(torch.nn.Linear(4, 4), process_group=group)
    model(torch.ones(2, 4)).sum().backward()
    dist.barrier()
    sys.setswitchinterval(10)  # gloo's thread is late, as it is now and then on a busy machine
    dist.all_reduce(torch.zeros(1), group=group)
    del model
    dist.destroy_process_group(group)
    del group
    sys.setswitchinterval(0.005)


for _ in range(20):
    faulthandler.dump_traceback_later(10, exit=True)
    train_and_leave()
print(f"rank {rank}: no hang", flush=True)
os._exit(0)
