"""One torchrun on each node, and a program that counts its nodes.

srunbook simulate --nodes 2 --ntasks-per-node 1 -- torchrun --nnodes 2 --nproc-per-node 2 \
    --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:29400 fixed.py
"""

from __future__ import annotations

import os
import sys

import torch.distributed as dist

dist.init_process_group("gloo")
hosts = [None] * dist.get_world_size()
dist.all_gather_object(hosts, os.environ["SLURMD_NODENAME"])
if len(set(hosts)) != int(os.environ["SLURM_NNODES"]):
    raise RuntimeError(f"Slurm gave {os.environ['SLURM_NNODES']} nodes, the processes run on {len(set(hosts))}")
if dist.get_rank() == 0:
    print(f"{len(hosts)} processes on {len(set(hosts))} nodes: training begins")
dist.barrier()  # no rank leaves while another still needs rank 0
sys.stdout.flush()
os._exit(0)  # in one step: gloo's threads may still hold tensors
