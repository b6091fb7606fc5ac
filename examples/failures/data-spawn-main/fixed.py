"""Workers are spawned, and import the program without running it.

python fixed.py
"""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader

if __name__ == "__main__":
    loader = DataLoader(torch.arange(4.0), batch_size=2, num_workers=1, multiprocessing_context="spawn")
    print([batch.tolist() for batch in loader])
