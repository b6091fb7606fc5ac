"""As many workers as this task has CPUs, and few batches that wait.

python fixed.py
"""

from __future__ import annotations

import os

import torch
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(8)  # read here, and not in __init__: each worker has a copy of what the dataset holds


if __name__ == "__main__":
    workers = min(len(os.sched_getaffinity(0)), 2)  # not os.cpu_count(), which counts the whole node
    print(sum(len(batch) for batch in DataLoader(Samples(), batch_size=2, num_workers=workers, prefetch_factor=1)))
