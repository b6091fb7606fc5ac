"""Train with batch norm, warm-up, validation and early stopping on all GPUs of all nodes.

    torchrun --standalone --nproc-per-node 2 validate_ddp.py
    sbatch ddp.sbatch validate_ddp.py

The model with the lowest validation loss goes to best.pt.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or its threads never end
from batch_norm import BatchNorm  # the file beside this one, for CPUs
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from torch.optim.lr_scheduler import LambdaLR

STEPS = 400
BATCH_SIZE = 64  # of all processes together
WARM_UP = 40  # steps
CHECK_EVERY = 20  # steps
PATIENCE = 2  # checks without a better loss


def evaluate(model, images, labels, device):
    """Return the mean loss over all images, of which each process takes its share."""
    count = len(images)
    images, labels = (part[dist.get_rank() :: dist.get_world_size()] for part in (images, labels))
    model.eval()
    total = torch.zeros((), device=device)
    with torch.no_grad():
        for x, y in zip(images.split(100), labels.split(100), strict=True):
            total += cross_entropy(model(x.to(device)), y.to(device), reduction="sum")
    model.train()
    dist.all_reduce(total)
    return total.item() / count


def main():
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # print whole lines
    torch.manual_seed(0)
    cuda = torch.cuda.is_available()
    device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if cuda else "cpu")
    if cuda:
        torch.cuda.set_device(device)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank}/{world_size} start host={os.uname().nodename} device={device}")
    if rank == 0 and not cuda and int(os.environ.get("SLURM_GPUS_ON_NODE", 0)):
        print("warning: Slurm gave this job GPUs and PyTorch sees none: training on CPUs")

    # Stand-in data: ten patterns under noise. Put your own dataset here.
    patterns = torch.randn(10, 1, 16, 16)
    labels = torch.randint(10, (2048,))
    images = patterns[labels] + 3 * torch.randn(2048, 1, 16, 16)
    images, held_out = images.split([1500, 548])
    labels, held_out_labels = labels.split([1500, 548])

    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.SyncBatchNorm(16) if cuda else BatchNorm(16),
        nn.GELU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(1024, 10),
    ).to(device)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / WARM_UP))

    best, waited = float("inf"), 0
    for step in range(1, STEPS + 1):
        chosen = torch.randint(len(images), (BATCH_SIZE,))  # the same on all processes
        chosen = chosen[rank::world_size]  # the share of this one
        x, y = images[chosen].to(device), labels[chosen].to(device)
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y, reduction="sum") * world_size / BATCH_SIZE
        loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % CHECK_EVERY == 0:
            score = evaluate(model.module, held_out, held_out_labels, device)
            if rank == 0:
                print(f"step {step}: loss {score:.6f}")
            waited += 1
            if score < best:
                best, waited = score, 0
                if rank == 0:
                    torch.save(model.module.state_dict(), "best.tmp")
                    Path("best.tmp").replace("best.pt")
            if waited == PATIENCE:
                break
    print(f"rank {rank}/{world_size} end")


if __name__ == "__main__":
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    main()
    dist.destroy_process_group()
