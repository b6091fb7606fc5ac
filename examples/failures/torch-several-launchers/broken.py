"""Two torchruns on each node. The first two to come are the job; the others fail.

srunbook simulate --nodes 2 --ntasks-per-node 2 --no-kill-on-bad-exit -- torchrun --nnodes 2 --nproc-per-node 2 \
    --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:29400 --rdzv-conf join_timeout=60 broken.py
"""

from __future__ import annotations

import os
import sys

import torch.distributed as dist

dist.init_process_group("gloo")
hosts = [None] * dist.get_world_size()
dist.all_gather_object(hosts, os.environ["SLURMD_NODENAME"])
if dist.get_rank() == 0:
    print(f"{len(hosts)} processes: training begins")
dist.barrier()  # no rank leaves while another still needs rank 0
sys.stdout.flush()
os._exit(0)  # in one step: gloo's threads may still hold tensors
