"""Compare ways to average gradients: bucket sizes, compression, pieces of a batch, and nothing sent at all.

    torchrun --standalone --nproc-per-node 2 send_less.py
    sbatch ddp.sbatch send_less.py

Put your own model into model(), and your batch into main().
"""

import os
import sys
from contextlib import nullcontext
from statistics import median
from time import perf_counter

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or its threads never end
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

BATCH = 512  # of each process
WARM_UP, STEPS = 3, 5


def model():
    return nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(8)))


def main():
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # print whole lines
    cuda = torch.cuda.is_available()
    device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if cuda else "cpu")
    if cuda:
        torch.cuda.set_device(device)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank}/{world_size} start host={os.uname().nodename} device={device}")
    x = torch.randn(BATCH, 1024, device=device)

    def measure(name, accumulate=1, send=True, hook=None, state=None, **options):
        ddp = DistributedDataParallel(model().to(device), **options)
        if hook:
            ddp.register_comm_hook(state, hook)
        seconds = []
        for _ in range(WARM_UP + STEPS):
            dist.barrier()
            start = perf_counter()
            for piece in range(accumulate):
                last = send and piece == accumulate - 1
                with nullcontext() if last else ddp.no_sync():
                    ddp(x).square().mean().backward()
            if cuda:
                torch.cuda.synchronize()
            seconds.append((perf_counter() - start) / accumulate)
            ddp.zero_grad()
        taken = torch.tensor(median(seconds[WARM_UP:]), device=device)
        dist.all_reduce(taken, dist.ReduceOp.MAX)  # the slowest rank's
        if rank == 0:
            print(f"{name:34} {1e3 * taken.item():10.1f} ms for {BATCH} rows")

    measure("nothing sent", send=False)
    measure("buckets of 25 MB (the default)")
    for megabytes in (1, 5, 100):
        measure(f"buckets of {megabytes} MB", bucket_cap_mb=megabytes)
    measure("float16", hook=fp16_compress_hook)
    state = PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2)  # 1000 in a real training
    measure("PowerSGD, rank 4", hook=powerSGD_hook, state=state)
    measure("4 pieces, sent once", accumulate=4)
    print(f"rank {rank}/{world_size} end")


if __name__ == "__main__":
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    main()
    dist.destroy_process_group()
