"""Load the first batch of one rank, of the size that the job script asks for."""

from __future__ import annotations

import os
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

ranks, size = int(os.environ["SLURM_NTASKS"]), int(sys.argv[1])
loader = DataLoader(TensorDataset(torch.arange(64)), batch_size=size)
print(f"batch of this rank: {len(next(iter(loader))[0])}; of all {ranks} ranks: {size * ranks}")
