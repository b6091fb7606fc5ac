"""A checkpoint holds more than tensors.

python broken.py
"""

from __future__ import annotations

from pathlib import Path

import torch

model = torch.nn.Linear(4, 1)
torch.save({"model": model.state_dict(), "data": Path("samples")}, "model.pt")  # the mistake: a path
print(torch.load("model.pt")["data"])
