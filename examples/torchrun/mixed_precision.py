"""Train a small network on all GPUs of all nodes, with less memory and in less time.

    torchrun --standalone --nproc-per-node 2 mixed_precision.py
    sbatch ddp.sbatch mixed_precision.py

The trained model goes to model.pt.
"""

import os
import sys
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or its threads never end
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS = 5
BATCH_SIZE = 64  # of all processes together
PIECES = 2  # compute a batch in so many pieces, one after the other
PRECISION = torch.bfloat16  # or torch.float16 on older GPUs, or torch.float32


class Recomputed(nn.Sequential):
    """Layers that keep only their input, and compute the rest again on the way back."""

    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=False)


def main():
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # print whole lines
    torch.manual_seed(0)
    cuda = torch.cuda.is_available()
    device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if cuda else "cpu")
    if cuda:
        torch.cuda.set_device(device)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    share = max(1, BATCH_SIZE // world_size)
    print(f"rank {rank}/{world_size} start host={os.uname().nodename} device={device}")
    if rank == 0:
        print(f"each step: {world_size} processes x {share} images = {world_size * share}")
        if not cuda and int(os.environ.get("SLURM_GPUS_ON_NODE", 0)):
            print("warning: Slurm gave this job GPUs and PyTorch sees none: training on CPUs")

    # Stand-in data: ten patterns under noise. Put your own dataset here.
    patterns = torch.randn(10, 1, 16, 16)
    labels = torch.randint(10, (2048,))
    images = patterns[labels] + 3 * torch.randn(2048, 1, 16, 16)
    dataset = TensorDataset(images, labels)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, share, sampler=sampler, drop_last=True)

    model = nn.Sequential(
        Recomputed(nn.Conv2d(1, 16, 3, padding=1), nn.GELU(), nn.AvgPool2d(2)), nn.Flatten(), nn.Linear(1024, 10)
    ).to(device)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    scaler = torch.amp.GradScaler(device.type, enabled=PRECISION is torch.float16)

    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)  # a new order each epoch, the same in each run
        total = torch.zeros((), device=device)
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            pieces = list(zip(x.chunk(PIECES), y.chunk(PIECES), strict=True))
            for i, (x, y) in enumerate(pieces, 1):
                with nullcontext() if i == len(pieces) else model.no_sync():  # send gradients once
                    with torch.autocast(device.type, PRECISION, enabled=PRECISION is not torch.float32):
                        loss = cross_entropy(model(x), y, reduction="sum") / share
                    scaler.scale(loss).backward()
                total += loss.detach()
            scaler.step(optimizer)
            scaler.update()
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total.item() / len(loader) / world_size:.6f}")

    if rank == 0:
        torch.save(model.module.state_dict(), "model.tmp")
        Path("model.tmp").replace("model.pt")
    print(f"rank {rank}/{world_size} end")


if __name__ == "__main__":
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    main()
    dist.destroy_process_group()
