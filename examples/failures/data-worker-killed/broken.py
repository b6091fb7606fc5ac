"""A worker of the loader is killed, as happens at the memory limit of a job.

python broken.py
"""

from __future__ import annotations

import os
import signal

import torch
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 0:
            os.kill(os.getpid(), signal.SIGKILL)  # what the kernel does to a process that takes too much
        return torch.zeros(8)


if __name__ == "__main__":
    print(sum(len(batch) for batch in DataLoader(Samples(), batch_size=2, num_workers=1)))
