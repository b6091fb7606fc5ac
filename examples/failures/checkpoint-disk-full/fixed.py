"""Looks for space first, and keeps the last checkpoint until the new one is whole.

python fixed.py
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

model = torch.nn.Linear(1000, 1000)
size = sum(tensor.nbytes for tensor in model.state_dict().values())
folder = Path("checkpoints")  # on the file system for large files, not in your home
folder.mkdir(exist_ok=True)
if shutil.disk_usage(folder).free < 2 * size:  # a quota of yours may be smaller
    raise SystemExit(f"{folder} has no space for {size} bytes")

torch.save(model.state_dict(), folder / "model.tmp")  # fails here, if it fails
(folder / "model.tmp").replace(folder / "model.pt")
print("model.pt is whole")
