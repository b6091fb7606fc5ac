"""Save with torch.save on rank 0, and resume on any number of processes.

    torchrun --standalone --nproc-per-node 2 with_torch_save.py 3
    torchrun --standalone --nproc-per-node 4 with_torch_save.py 6

The argument is the step to train to. The checkpoint is checkpoint.pt.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or the group never ends
from torch.nn.parallel import DistributedDataParallel

CHECKPOINT, BESIDE = Path("checkpoint.pt"), Path("checkpoint.tmp")


def main():
    torch.manual_seed(0)
    x, y = torch.randn(64, 8), torch.randn(64, 4)  # put your own data here
    model = DistributedDataParallel(torch.nn.Linear(8, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    state = torch.load(CHECKPOINT, weights_only=True) if CHECKPOINT.exists() else {"step": 0}
    if state["step"]:
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for step in range(state["step"] + 1, int(sys.argv[1]) + 1):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"{dist.get_world_size()} processes, step {step}: loss {loss.item():.6f}")
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, BESIDE)
            with BESIDE.open() as file:
                os.fsync(file)  # on the disk before it takes the place of the old one
            BESIDE.replace(CHECKPOINT)


dist.init_process_group("gloo")
main()
dist.destroy_process_group()
