"""Each node is told that it stands alone, and trains by itself.

srunbook simulate --nodes 2 --ntasks-per-node 1 -- torchrun --standalone --nproc-per-node 2 broken.py
"""

from __future__ import annotations

import os
import sys

import torch.distributed as dist

dist.init_process_group("gloo")
# Text and newline in one write: the processes of a node share the log.
sys.stdout.write(f"rank {dist.get_rank()} of {dist.get_world_size()} on {os.environ['SLURMD_NODENAME']}\n")
dist.barrier()  # a rank that leaves early would break the connections that others still make
dist.destroy_process_group()
