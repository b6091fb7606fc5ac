"""Training in 16 bits: the loss is larger than 65,504, the largest number of float16.

python broken.py
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
    with torch.autocast("cpu", dtype=torch.float16):
        loss = (model(x) - y.half()).square().mean()  # the mistake: a sum of squares in float16
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item()}, weight {model.weight[0, 0].item():.4f}")
