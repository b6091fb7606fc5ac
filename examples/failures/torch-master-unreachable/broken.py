"""Every process makes up a port of its own, so nobody finds rank 0.

srunbook simulate --nodes 2 --ntasks-per-node 1 --no-kill-on-bad-exit -- python broken.py
"""

from __future__ import annotations

import os
from datetime import timedelta

import torch.distributed as dist

# The mistake. In a job script: srun bash -c 'MASTER_PORT=$RANDOM python train.py'
port = 20000 + os.getpid() % 5000

# PyTorch waits 30 minutes unless told otherwise; six seconds do for a demonstration.
dist.init_process_group(
    "gloo",
    init_method=f"tcp://127.0.0.1:{port}",
    rank=int(os.environ["SLURM_PROCID"]),
    world_size=int(os.environ["SLURM_NTASKS"]),
    timeout=timedelta(seconds=6),
)
