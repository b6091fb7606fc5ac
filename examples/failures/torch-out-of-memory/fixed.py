"""The gradient of a large batch, from pieces that fit: gradient accumulation.

python fixed.py
"""

from __future__ import annotations

import torch

torch.manual_seed(0)
model = torch.nn.Linear(64, 1)
batch = torch.randn(1024, 64)

model(batch).square().mean().backward()
at_once = model.weight.grad.clone()

model.zero_grad()
for piece in batch.chunk(16):  # only 64 rows at a time take part in a graph
    (model(piece).square().mean() / 16).backward()

print("the same gradient:", torch.allclose(at_once, model.weight.grad, atol=1e-6))
