"""Train a small network to forecast the next speed of a road sensor, and time every step.

python timed.py
srunbook simulate --nodes 2 -- python timed.py
sbatch ddp_cpu.sbatch timed.py
"""

import csv
import os
from pathlib import Path
from time import perf_counter

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group: imported later, it would keep the group alive
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS = 5
BATCH_SIZE = 64  # of all processes together
PARTS = ("data_ms", "compute_ms", "wait_ms")


def note_and_average(ready, bucket):
    """Average a bucket of gradients as DDP does, and note when this process had computed it."""
    ready[0] = perf_counter()
    return allreduce_hook(None, bucket)


def write_whole(path, rows):
    """Write a table under a temporary name, then rename it: a job may end at any moment."""
    part = Path(f"{path}.part")
    with part.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    part.replace(path)


def main():
    torch.manual_seed(0)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ.get("SLURM_LOCALID", 0))
    share = max(1, BATCH_SIZE // world_size)
    host = os.environ.get("SLURMD_NODENAME", os.uname().nodename)
    print(f"rank {rank}/{world_size} start host={host} local_rank={local_rank} device=cpu", flush=True)
    if rank == 0:
        print(f"each step: {world_size} processes x {share} windows = {world_size * share}", flush=True)

    # Stand-in data: a daily wave under noise, every five minutes. Put your own dataset here.
    time = torch.arange(2048 + 12)
    speeds = torch.sin(time * 2 * torch.pi / 288) + 0.1 * torch.randn(len(time))
    hours = speeds.unfold(0, 13, 1)  # 2048 windows: an hour to look at, and the speed after it
    dataset = TensorDataset(hours[:, :12], hours[:, 12:])
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, share, sampler=sampler, drop_last=True)

    model = nn.Sequential(nn.Linear(12, 64), nn.Tanh(), nn.Linear(64, 1))
    model = DistributedDataParallel(model)
    ready = [0.0]
    model.register_comm_hook(ready, note_and_average)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9)

    rows = [("epoch", "rank", "loss", *PARTS)]
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)  # a new order each epoch, the same in each run
        total = torch.zeros(())
        spent = torch.zeros(len(PARTS), dtype=torch.float64)
        done = perf_counter()
        for x, y in loader:
            before, loaded = done, perf_counter()
            loss = mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            averaged = perf_counter()
            optimizer.step()
            total += loss.detach()
            done = perf_counter()
            waited = averaged - ready[0]
            spent += torch.tensor([loaded - before, done - loaded - waited, waited])
        dist.all_reduce(total)
        everyone = [torch.zeros_like(spent) for _ in range(world_size)]
        dist.all_gather(everyone, 1000 * spent / len(loader))
        if rank == 0:
            loss = total.item() / len(loader) / world_size
            print(f"epoch {epoch}: loss {loss:.6f}", flush=True)
            for other, parts in enumerate(everyone):
                rows.append((epoch, other, f"{loss:.6f}", *(f"{part:.3f}" for part in parts.tolist())))
            write_whole("metrics.csv", rows)

    if rank == 0:
        for _, other, _, *parts in rows[-world_size:]:
            print("rank {}: data {} ms, computing {} ms, waiting {} ms a step".format(other, *parts), flush=True)
        torch.save(model.module.state_dict(), "model.tmp")
        Path("model.tmp").replace("model.pt")
    print(f"rank {rank}/{world_size} end")


if __name__ == "__main__":
    rank, world_size = int(os.environ.get("SLURM_PROCID", 0)), int(os.environ.get("SLURM_NTASKS", 1))
    if world_size > 1 and "SLURM_STEP_ID" not in os.environ:
        raise SystemExit("error: start this program with srun, which gives each process its rank")
    os.environ.setdefault("MASTER_ADDR", os.environ.get("SLURM_LAUNCH_NODE_IPADDR", "localhost"))
    os.environ.setdefault("MASTER_PORT", str(25000 + int(os.environ.get("SLURM_JOB_ID", 0)) % 7000))
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    main()
    dist.destroy_process_group()
