"""The job was killed while it wrote a checkpoint, and the one before is still there.

python fixed.py
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import torch

model = torch.nn.Linear(100, 100)


def save(path: Path, killed: bool = False) -> None:
    """Writes beside the file, and puts it in its place when all of it is on the disk."""
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    content = buffer.getvalue()
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        file.write(content[: len(content) // 2] if killed else content)
        file.flush()
        os.fsync(file.fileno())
    if not killed:
        temporary.replace(path)


save(Path("checkpoint_epoch_1.pt"))
save(Path("checkpoint_epoch_2.pt"), killed=True)
for path in sorted(Path().glob("checkpoint_epoch_*.pt")):
    torch.load(path, weights_only=True)
    print(f"{path} is whole")
