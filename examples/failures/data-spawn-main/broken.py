"""Workers are spawned by a program without a main guard.

python broken.py
"""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader

loader = DataLoader(torch.arange(4.0), batch_size=2, num_workers=1, multiprocessing_context="spawn")
print([batch.tolist() for batch in loader])  # the mistake: each worker runs this line as well
