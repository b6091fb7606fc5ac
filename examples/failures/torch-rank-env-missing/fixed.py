"""Started by srun alone, and told by Slurm's variables who this process is.

srunbook simulate --nodes 2 --ntasks-per-node 1 -- python fixed.py
"""

from __future__ import annotations

import os

import torch.distributed as dist

# In a job script, for MASTER_ADDR: scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ["MASTER_PORT"] = str(25000 + int(os.environ["SLURM_JOB_ID"]) % 7000)
os.environ["RANK"] = os.environ["SLURM_PROCID"]
os.environ["WORLD_SIZE"] = os.environ["SLURM_NTASKS"]
os.environ["LOCAL_RANK"] = os.environ["SLURM_LOCALID"]

dist.init_process_group("gloo")
print(f"rank {dist.get_rank()} of {dist.get_world_size()}")
dist.barrier()  # no rank leaves while another still needs rank 0
dist.destroy_process_group()
