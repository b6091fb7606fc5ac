"""Each rank loads its share.

srunbook simulate --ntasks-per-node 2 -- python fixed.py
"""

from __future__ import annotations

import os

import torch
from torch.utils.data import DataLoader, DistributedSampler

rank = int(os.environ["SLURM_PROCID"])
samples = torch.arange(8)
torch.manual_seed(0)  # as it should be: the same first parameters everywhere
sampler = DistributedSampler(samples, num_replicas=int(os.environ["SLURM_NTASKS"]), rank=rank, drop_last=True)
loader = DataLoader(samples, batch_size=2, sampler=sampler)
print(f"rank {rank}: {[batch.tolist() for batch in loader]}")
