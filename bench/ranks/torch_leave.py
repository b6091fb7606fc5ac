"""Make process groups with a model each and free both, in one order or the other; print a number after each.

python torch_leave.py model-first 200    # RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

GREEDY = 10.0
"""Seconds for which the main thread keeps Python's lock: whoever else wants it comes too late."""


def one(model_first: bool) -> None:
    """Train one step in a group of its own, and free the model and the group."""
    group = dist.new_group()
    model = DistributedDataParallel(torch.nn.Linear(4, 4), process_group=group)
    model(torch.ones(2, 4)).sum().backward()
    dist.barrier()
    sys.setswitchinterval(GREEDY)
    dist.all_reduce(torch.zeros(1), group=group)
    if model_first:
        del model
        dist.destroy_process_group(group)
        del group
    else:
        dist.destroy_process_group(group)
        del group
        del model
    sys.setswitchinterval(0.005)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for number in range(int(sys.argv[2])):
        one(sys.argv[1] == "model-first")
        print(number + 1, flush=True)
    os._exit(0)
