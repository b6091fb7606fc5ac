"""Save with torch.distributed.checkpoint, each process its shards, and resume on any number of processes.

    torchrun --standalone --nproc-per-node 2 with_dcp.py 3
    torchrun --standalone --nproc-per-node 4 with_dcp.py 6

The argument is the step to train to. The checkpoints are folders in checkpoints/, one for each step.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard


def main():
    torch.manual_seed(0)
    x, y = torch.randn(64, 8), torch.randn(64, 4)  # put your own data here
    model = fully_shard(torch.nn.Linear(8, 4))  # each process holds a part of each parameter
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    # .metadata is written last: a folder without it is half a checkpoint.
    steps = [file.parent.name for file in Path("checkpoints").glob("*/.metadata")]
    newest = [max((int(step) for step in steps if step.isdigit()), default=0)]
    dist.broadcast_object_list(newest)  # other nodes may see a new folder later
    done = newest[0]
    if done:
        parts = get_state_dict(model, optimizer)  # says what to read, and where to put it
        dcp.load(dict(zip(("model", "optimizer"), parts, strict=True)), checkpoint_id=f"checkpoints/{done}")
        set_state_dict(model, optimizer, model_state_dict=parts[0], optim_state_dict=parts[1])
    for step in range(done + 1, int(sys.argv[1]) + 1):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"{dist.get_world_size()} processes, step {step}: loss {loss.item():.6f}")
        parts = get_state_dict(model, optimizer)
        dcp.save(dict(zip(("model", "optimizer"), parts, strict=True)), checkpoint_id=f"checkpoints/{step}")


dist.init_process_group("gloo")
main()
dist.destroy_process_group()
