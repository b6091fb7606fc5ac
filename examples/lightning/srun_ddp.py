"""DDP, each process started by srun.

srunbook simulate --ntasks-per-node 2 -- python srun_ddp.py
"""

import os

import torch.distributed as dist
from same_model import EPOCHS, keep, leave, make_loader, make_model, make_optimizer
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
os.environ["MASTER_ADDR"] = os.environ["SLURM_LAUNCH_NODE_IPADDR"]  # in a batch job: its first node
os.environ["MASTER_PORT"] = str(25000 + int(os.environ["SLURM_JOB_ID"]) % 7000)
dist.init_process_group("gloo", rank=rank, world_size=world)
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
