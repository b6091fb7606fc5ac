"""The layers compute in 16 bits with the range of 32, and the loss in 32 bits.

python fixed.py
"""

from __future__ import annotations

import torch

torch.manual_seed(0)
model = torch.nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(256, 64)
y = 300 * x.sum(1, keepdim=True)
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(x)
    loss = (output.float() - y).square().mean()
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item():.3e}, weight {model.weight[0, 0].item():.4f}")
