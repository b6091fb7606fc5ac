"""Train with a mistake that costs time, and profile ten steps on each rank.

    torchrun --standalone --nproc-per-node 2 slow.py data
    sbatch ddp.sbatch slow.py data  # or: straggler, item, small, none

The trace of each rank goes to trace-JOBID/.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or its threads never end
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import profile, schedule
from torch.utils.data import DataLoader, Dataset, DistributedSampler

MISTAKE = sys.argv[1] if len(sys.argv) > 1 else "none"
BATCH_SIZE = 64  # of all processes together
STEPS = 30


class Images(Dataset):
    """Stand-in data: ten patterns under noise, and half a millisecond to read each image."""

    def __init__(self):
        self.patterns = torch.randn(10, 256)

    def __len__(self):
        return 2048

    def __getitem__(self, index):
        time.sleep(0.0005)
        return self.patterns[index % 10] + 3 * torch.randn(256), index % 10


def main():
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # print whole lines
    torch.manual_seed(0)
    cuda = torch.cuda.is_available()
    device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if cuda else "cpu")
    if cuda:
        torch.cuda.set_device(device)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank}/{world_size} start host={os.uname().nodename} device={device}")

    dataset = Images()
    sampler = DistributedSampler(dataset)
    workers = 0 if MISTAKE == "data" else 2  # processes that read ahead
    loader = DataLoader(dataset, BATCH_SIZE // world_size, sampler=sampler, drop_last=True, num_workers=workers)
    layers = [nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 256), nn.GELU()) for _ in range(8)]
    model = nn.Sequential(*layers, nn.Linear(256, 10)).to(device)
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

    folder = Path(f"trace-{os.environ.get('SLURM_JOB_ID', 'local')}")
    folder.mkdir(exist_ok=True)

    def write(profiler):
        profiler.export_chrome_trace(f"{folder}/rank-{rank}.json")

    plan = schedule(wait=10, warmup=5, active=10, repeat=1)  # steps
    profiler = profile(schedule=plan, on_trace_ready=write, record_shapes=True)
    profiler.start()
    for step, (x, y) in zip(range(1, STEPS + 1), loader, strict=False):
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        if MISTAKE == "straggler" and rank == 1:
            for _ in range(10):
                model(x)  # a slow node
        scores = model(x) if MISTAKE == "small" else ddp(x)
        loss = cross_entropy(scores, y)
        loss.backward()
        if MISTAKE == "small":
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= world_size
        optimizer.step()
        values = torch.stack([loss.detach(), *(parameter.grad.norm() for parameter in model.parameters())])
        if MISTAKE == "item":
            for value in values:
                dist.all_reduce(value)
                value.item()  # waits for the GPU and for all ranks
        elif step % 10 == 0:
            dist.all_reduce(values)
        if rank == 0 and step % 10 == 0:
            loss, *norms = (values / world_size).tolist()
            print(f"step {step}: largest gradient {max(norms):.3f} loss {loss:.6f}")
        profiler.step()
    profiler.stop()
    print(f"rank {rank}/{world_size} end")


if __name__ == "__main__":
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    main()
    dist.destroy_process_group()
