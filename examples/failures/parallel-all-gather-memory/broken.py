"""Half of the model fits into memory, and the first step gathers all of it.

srunbook simulate --ntasks-per-node 2 --no-kill-on-bad-exit -- python broken.py
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)  # each thread takes address space, which is limited below
rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

with torch.device("meta"):
    model = torch.nn.Sequential(*(torch.nn.Linear(3072, 3072, bias=False) for _ in range(8)))  # of 36 MiB each
fully_shard(model)  # the mistake: one group for all layers
model.to_empty(device="cpu")
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 250 * 2**20, -1))  # in place of a GPU with little left
with torch.no_grad():
    model(torch.ones(1, 3072))
