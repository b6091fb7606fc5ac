"""A checkpoint from a GPU is loaded into the memory of the host first.

python fixed.py
"""

from __future__ import annotations

import torch

# In place of a GPU: save tensors as if they were on one.
torch.serialization.register_package(0, lambda *_: "cuda:0", lambda *_: None)
torch.save(torch.nn.Linear(4, 1).state_dict(), "model.pt")

print(sorted(torch.load("model.pt", map_location="cpu")))
