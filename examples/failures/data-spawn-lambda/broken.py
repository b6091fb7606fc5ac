"""Workers are spawned, and one of their functions has no name.

python broken.py
"""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader

if __name__ == "__main__":
    loader = DataLoader(
        torch.arange(4.0),
        batch_size=2,
        num_workers=1,
        multiprocessing_context="spawn",
        collate_fn=lambda samples: torch.stack(samples) / 4,  # the mistake
    )
    print([batch.tolist() for batch in loader])
