"""The program saves when torchrun passes the signal on.

srunbook simulate --nodes 1 --ntasks-per-node 1 -- torchrun --standalone --signals-to-handle SIGUSR2 fixed.py
"""

from __future__ import annotations

import os
import signal
import time

import torch

weights = torch.zeros(1000)
stop = False


def stop_soon(*_: object) -> None:
    """Ends the loop after the step that runs."""
    global stop
    stop = True


signal.signal(signal.SIGUSR2, stop_soon)
os.kill(os.getppid(), signal.SIGUSR2)  # as Slurm does with --signal=USR2@120
while not stop:
    time.sleep(0.1)  # a step of the training
torch.save(weights, "checkpoint.pt")
print("saved", flush=True)
