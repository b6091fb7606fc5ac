"""Without --nnodes the first torchrun to come is the whole job; the other one waits, and fails.

srunbook simulate --nodes 2 --ntasks-per-node 1 --no-kill-on-bad-exit -- torchrun --nproc-per-node 2 \
    --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:29400 --rdzv-conf join_timeout=60 no_nnodes.py
"""

from __future__ import annotations

import os
import sys

import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    print(f"{dist.get_world_size()} processes: training begins")
dist.barrier()  # no rank leaves while another still needs rank 0
sys.stdout.flush()
os._exit(0)  # in one step: gloo's threads may still hold tensors
