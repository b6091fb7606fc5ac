"""Count how many samples a trained model gets right.

python evaluate.py model-my-staged.pt
"""

import sys

import torch
from shards import Shards
from torch import nn
from torch.utils.data import DataLoader

# The same model as in stateful.py
model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.GELU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(1024, 10))
model.load_state_dict(torch.load(sys.argv[1], map_location="cpu", weights_only=True))

right = total = 0
with torch.no_grad():
    for x, y in DataLoader(Shards("shards", 0, 1), 64):  # EDIT: shards that you didn't train with
        right += (model(x).argmax(1) == y).sum().item()
        total += len(y)
print(f"{right} of {total} samples are right")
