"""Counts the CPUs that the rank may use.

python fixed.py
"""

from __future__ import annotations

import os

import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # as srun --cpus-per-task=1 does
    samples = TensorDataset(torch.zeros(8, 1))
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", 1))  # under torchrun they share the CPUs of one task
    workers = len(os.sched_getaffinity(0)) // ranks
    print(sum(len(batch) for (batch,) in DataLoader(samples, batch_size=2, num_workers=workers)))
