"""Workers are spawned, and find the function by its name.

python fixed.py
"""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader


def collate(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(samples) / 4


if __name__ == "__main__":
    loader = DataLoader(
        torch.arange(4.0),
        batch_size=2,
        num_workers=1,
        multiprocessing_context="spawn",
        collate_fn=collate,
    )
    print([batch.tolist() for batch in loader])
