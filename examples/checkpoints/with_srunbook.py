"""Save with srunbook.checkpoint, and resume on any number of processes.

    torchrun --standalone --nproc-per-node 2 with_srunbook.py 3
    torchrun --standalone --nproc-per-node 4 with_srunbook.py 6

The argument is the step to train to. The checkpoints are folders in checkpoints/, one for each step.
"""

import sys

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or the group never ends
from torch.nn.parallel import DistributedDataParallel

from srunbook.checkpoint import Checkpoints, flatten, unflatten


def main():
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    x, y = torch.randn(64, 8), torch.randn(64, 4)  # put your own data here
    model = DistributedDataParallel(torch.nn.Linear(8, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    checkpoints = Checkpoints("checkpoints", process_id=rank, num_processes=world_size, barrier=dist.barrier)
    restored = checkpoints.restore()  # the newest that is whole, or None
    if restored:
        state = unflatten(restored.tensors, restored.metadata)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for step in range(restored.step + 1 if restored else 1, int(sys.argv[1]) + 1):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"{world_size} processes, step {step}: loss {loss.item():.6f}")
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
        checkpoints.save(step, *flatten(state))  # every process calls it


dist.init_process_group("gloo")
main()
dist.destroy_process_group()
