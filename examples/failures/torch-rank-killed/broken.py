"""Rank 1 is killed, and torchrun says with which signal.

srunbook simulate --nodes 1 --ntasks-per-node 1 -- torchrun --standalone --nproc-per-node 2 broken.py
"""

from __future__ import annotations

import os
import signal
import time

import torch

weights = torch.zeros(1000)
if os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)  # as the system does when memory runs out
time.sleep(60)
