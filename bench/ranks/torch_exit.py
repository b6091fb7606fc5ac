"""Train a few steps, destroy the process group, and print how many of gloo's threads are left.

python torch_exit.py early DistributedDataParallel    # RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if sys.argv[1] == "early":  # late: the constructor of DistributedDataParallel imports it
    import torch.distributed.nn
if sys.argv[2] != "DistributedDataParallel":  # this imports torch.distributed.nn as well
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.debug import _clear_sharding_prop_cache


def train() -> None:
    """Train, and free the model on return."""
    layer = torch.nn.Linear(256, 256)
    model = DistributedDataParallel(layer) if sys.argv[2] == "DistributedDataParallel" else fully_shard(layer)
    for _ in range(3):
        model(torch.ones(8, 256)).sum().backward()
        loss = torch.zeros(1)
        dist.all_reduce(loss)


def gloo_threads() -> int:
    """Count the threads of this process that gloo has started."""
    names = [path.read_text(encoding="ascii") for path in Path("/proc/self/task").glob("*/comm")]
    return sum("gloo" in name for name in names)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train()
    if sys.argv[2] == "fully_shard, cache cleared":
        _clear_sharding_prop_cache()
        gc.collect()
    dist.destroy_process_group()
    print(gloo_threads(), flush=True)
