"""The job was killed while it wrote the only checkpoint.

python broken.py
"""

from __future__ import annotations

from pathlib import Path

import torch


def save_and_be_killed(features: int) -> None:
    """Half a checkpoint of a layer, as a job leaves it that is killed meanwhile."""
    # The mistake: the new checkpoint is written over the old one.
    torch.save(torch.nn.Linear(features, features).state_dict(), "checkpoint.pt")
    whole = Path("checkpoint.pt").read_bytes()
    Path("checkpoint.pt").write_bytes(whole[: len(whole) // 2])


save_and_be_killed(100)
try:
    torch.load("checkpoint.pt", weights_only=True)
except OSError as error:
    print(f"of a small model: {error}", flush=True)

save_and_be_killed(1000)
torch.load("checkpoint.pt", weights_only=True)
