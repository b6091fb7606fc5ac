"""DDP, the processes started by torchrun.

torchrun --standalone --nproc-per-node 2 torchrun_ddp.py
"""

import torch.distributed as dist
from same_model import EPOCHS, keep, leave, make_loader, make_model, make_optimizer
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")  # torchrun has set all that it reads
rank, world = dist.get_rank(), dist.get_world_size()
model = DistributedDataParallel(make_model())
optimizer = make_optimizer(model)
loader = make_loader(rank, world)
losses = []
for _ in range(EPOCHS):
    for points, labels in loader:
        optimizer.zero_grad()
        loss = cross_entropy(model(points), labels)
        loss.backward()
        optimizer.step()
        loss = loss.detach()
        dist.all_reduce(loss)
        losses.append(loss.item() / world)
keep(model.module, losses, rank)
del model
leave()
