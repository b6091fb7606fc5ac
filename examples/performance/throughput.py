"""Train a small network on all GPUs of all nodes, or on CPUs, and print how fast that was.

    torchrun --standalone --nproc-per-node 2 throughput.py
    sbatch ddp.sbatch throughput.py

The trained model goes to model.pt.
"""

import os
import sys
from pathlib import Path
from time import perf_counter

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or its threads never end
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torch.utils.flop_counter import FlopCounterMode

EPOCHS = 5
BATCH_SIZE = 64  # of all processes together
PEAK = 494e12  # EDIT: FLOP/s of your GPU in the precision of your program; an H100 in TF32


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
        nn.Conv2d(1, 16, 3, padding=1), nn.GELU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(1024, 10)
    ).to(device)
    with FlopCounterMode(display=False) as counter:  # one step of this rank
        model(images[:share].to(device)).sum().backward()
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

    for epoch in range(EPOCHS):
        if epoch == 1:  # the first epoch is the warm-up
            if cuda:
                torch.cuda.synchronize()  # a GPU computes while Python runs on
            start = perf_counter()
        sampler.set_epoch(epoch)  # a new order each epoch, the same in each run
        total = torch.zeros((), device=device)
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total.item() / len(loader) / world_size:.6f}")

    if cuda:
        torch.cuda.synchronize()
    seconds = (perf_counter() - start) / (EPOCHS - 1) / len(loader)  # of a step
    speed = counter.get_total_flops() / seconds
    if rank == 0:
        print(f"{share * world_size / seconds:.0f} images/s, {share / seconds:.0f} images/s on each device")
        print(f"{speed / 1e9:.2f} GFLOP/s on each device" + (f", MFU {speed / PEAK:.1%}" if cuda else ""))
        torch.save(model.module.state_dict(), "model.tmp")
        Path("model.tmp").replace("model.pt")
    print(f"rank {rank}/{world_size} end")


if __name__ == "__main__":
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    main()
    dist.destroy_process_group()
