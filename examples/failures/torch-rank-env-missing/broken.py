"""Started by srun alone: nobody has told PyTorch who this process is.

srunbook simulate --nodes 2 --ntasks-per-node 1 -- python broken.py
"""

from __future__ import annotations

import torch.distributed as dist

# The mistake: srun sets SLURM_PROCID. PyTorch reads RANK, which torchrun sets.
dist.init_process_group("gloo")
print(f"rank {dist.get_rank()} of {dist.get_world_size()}")
