"""Counts the CPUs of the node, of which the task has one.

python broken.py
"""

from __future__ import annotations

import os

import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # as srun --cpus-per-task=1 does
    samples = TensorDataset(torch.zeros(8, 1))
    workers = max(os.cpu_count() or 1, 2)
    print(sum(len(batch) for (batch,) in DataLoader(samples, batch_size=2, num_workers=workers)))
