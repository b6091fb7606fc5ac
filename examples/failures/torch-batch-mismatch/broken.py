"""Both ranks reshape images with four channels as if they had three.

torchrun --standalone --nproc-per-node 2 broken.py
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

dist.init_process_group("gloo")
torch.manual_seed(0)
images = torch.randn(6, 4, 2)  # six images with four channels of two pixels
labels = torch.randint(10, (6,))
rank, world_size = dist.get_rank(), dist.get_world_size()
x, y = images[rank::world_size], labels[rank::world_size]  # three for each rank

model = torch.nn.Linear(3 * 2, 10)
loss = cross_entropy(model(x.reshape(-1, 3 * 2)), y)
