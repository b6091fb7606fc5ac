"""One endpoint for all nodes, and a program that counts its processes.

srunbook simulate --nodes 2 --ntasks-per-node 1 -- torchrun --nnodes 2 --nproc-per-node 2 \
    --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:29400 fixed.py
"""

from __future__ import annotations

import os
import sys

import torch.distributed as dist

dist.init_process_group("gloo")
expected = int(os.environ["SLURM_NNODES"]) * int(os.environ["LOCAL_WORLD_SIZE"])
if dist.get_world_size() != expected:
    raise RuntimeError(f"{dist.get_world_size()} processes, and the nodes of the job have {expected}")
# Text and newline in one write: the processes of a node share the log.
sys.stdout.write(f"rank {dist.get_rank()} of {dist.get_world_size()} on {os.environ['SLURMD_NODENAME']}\n")
dist.barrier()  # a rank that leaves early would break the connections that others still make
dist.destroy_process_group()
