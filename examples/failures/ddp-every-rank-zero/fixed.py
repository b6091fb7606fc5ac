"""The program takes the variables of srun or of torchrun, and compares them with what Slurm started.

srunbook simulate --ntasks-per-node 2 -- python fixed.py
"""

from __future__ import annotations

import os
import sys

import torch.distributed as dist

if "RANK" not in os.environ and "SLURM_PROCID" in os.environ:  # started by srun, without torchrun
    os.environ["RANK"], os.environ["WORLD_SIZE"] = os.environ["SLURM_PROCID"], os.environ["SLURM_NTASKS"]
    os.environ["MASTER_ADDR"] = "127.0.0.1"  # in a job script: the first host of the job
    os.environ["MASTER_PORT"] = str(25000 + int(os.environ["SLURM_JOB_ID"]) % 7000)
dist.init_process_group("gloo")
if dist.get_world_size() < int(os.environ.get("SLURM_NTASKS", 1)):
    sys.exit(f"error: {os.environ['SLURM_NTASKS']} tasks, but a world of {dist.get_world_size()}")
print(f"rank {dist.get_rank()} of {dist.get_world_size()}")
dist.barrier()  # a rank that leaves early would break the connections that others still make
dist.destroy_process_group()
