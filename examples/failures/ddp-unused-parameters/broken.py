"""The loss does not depend on one layer, and DDP waits for its gradient.

srunbook simulate --ntasks-per-node 2 --no-kill-on-bad-exit -- python broken.py
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

layers = torch.nn.ModuleDict({"used": torch.nn.Linear(4, 1), "unused": torch.nn.Linear(4, 1)})
layers.forward = lambda x: layers["used"](x)  # the mistake: it leaves out a layer
model = torch.nn.parallel.DistributedDataParallel(layers)
for _ in range(2):
    model(torch.ones(2, 4)).sum().backward()
