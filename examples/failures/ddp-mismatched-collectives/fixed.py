"""All ranks make the barrier after rank 0 has saved.

srunbook simulate --ntasks-per-node 2 -- python fixed.py
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"  # better in the job script
dist.set_debug_level_from_env()
rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

if rank == 0:
    torch.save({}, "model.pt")
dist.barrier()
loss = torch.ones(1)
dist.all_reduce(loss)
print(f"rank {rank}: the sum is {loss.item():.1f}")
dist.destroy_process_group()
