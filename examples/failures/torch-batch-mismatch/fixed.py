"""Each image stays one row, and the fourth channel goes.

torchrun --standalone --nproc-per-node 2 fixed.py
"""

from __future__ import annotations

import sys

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
x = x[:, :3]  # without the alpha channel
output = model(x.flatten(1))  # one row for each image
loss = cross_entropy(output, y)
# Text and newline in one write: both processes share the output.
sys.stdout.write(f"rank {rank}: {len(output)} rows, {len(y)} labels\n")
dist.barrier()  # a rank that leaves early would break the connections that others still make
dist.destroy_process_group()
