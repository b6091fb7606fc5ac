"""Every rank loads the same batches.

srunbook simulate --ntasks-per-node 2 -- python broken.py
"""

from __future__ import annotations

import os

import torch
from torch.utils.data import DataLoader

rank = int(os.environ["SLURM_PROCID"])
samples = torch.arange(8)
torch.manual_seed(0)  # as it should be: the same first parameters everywhere
loader = DataLoader(samples, batch_size=2, shuffle=True)  # the mistake: all ranks draw alike
print(f"rank {rank}: {[batch.tolist() for batch in loader]}")
