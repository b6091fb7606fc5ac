"""Samples of a size that fits, and one batch of each worker that waits.

python fixed.py
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(2**10)


if __name__ == "__main__":
    batch_bytes, workers, waiting = 2 * 4 * 2**10, 1, 1
    if workers * (waiting + 1) * batch_bytes > shutil.disk_usage(Path("/dev", "shm")).free:
        workers = 0  # load in this process: slower, and nothing is shared
    loader = DataLoader(Samples(), batch_size=2, num_workers=workers, prefetch_factor=waiting if workers else None)
    print(sum(len(batch) for batch in loader))
