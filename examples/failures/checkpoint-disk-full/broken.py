"""Saves to a device that is always full.

python broken.py
"""

from __future__ import annotations

import torch

model = torch.nn.Linear(1000, 1000)
torch.save(model.state_dict(), "/dev/full")
