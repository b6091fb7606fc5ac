"""Each process gets a single thread from torchrun, whatever Slurm has granted.

srunbook simulate --nodes 1 --ntasks-per-node 1 -- torchrun --standalone --nproc-per-node 2 broken.py
"""

from __future__ import annotations

import os
import sys

import torch

# Text and newline in one write: the processes of a node share the log.
sys.stdout.write(f"rank {os.environ['RANK']} computes with {torch.get_num_threads()} thread\n")
