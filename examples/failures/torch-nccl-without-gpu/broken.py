"""NCCL is asked for where there is no GPU.

srunbook simulate --nodes 1 --ntasks-per-node 1 -- python broken.py
"""

from __future__ import annotations

import os

import torch.distributed as dist

port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
# The mistake: a backend by name, wherever the program runs.
dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
