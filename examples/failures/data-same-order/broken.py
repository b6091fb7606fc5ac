"""Every epoch has the same order.

srunbook simulate --ntasks-per-node 2 -- python broken.py
"""

from __future__ import annotations

import os

import torch
from torch.utils.data import DataLoader, DistributedSampler

rank = int(os.environ["SLURM_PROCID"])
samples = torch.arange(8)
sampler = DistributedSampler(samples, num_replicas=int(os.environ["SLURM_NTASKS"]), rank=rank)
loader = DataLoader(samples, batch_size=2, sampler=sampler)
for epoch in range(2):
    print(f"rank {rank}, epoch {epoch}: {[batch.tolist() for batch in loader]}")
