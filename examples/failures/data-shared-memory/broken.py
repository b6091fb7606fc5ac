"""A worker hands over a batch that is larger than the shared memory.

python broken.py
"""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(1).expand(2**40)  # 4 TiB that take no memory, until a batch is made of them


if __name__ == "__main__":
    print(sum(len(batch) for batch in DataLoader(Samples(), batch_size=2, num_workers=1)))
