"""The signal that Slurm sends before the time limit reaches torchrun, and the program knows nothing of it.

srunbook simulate --nodes 1 --ntasks-per-node 1 -- torchrun --standalone --signals-to-handle SIGUSR2 broken.py
"""

from __future__ import annotations

import os
import signal
import time

import torch

weights = torch.zeros(1000)
os.kill(os.getppid(), signal.SIGUSR2)  # as Slurm does with --signal=USR2@120
time.sleep(60)
torch.save(weights, "checkpoint.pt")
