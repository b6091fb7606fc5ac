"""Train a small network to forecast the next speed of a road sensor, and continue where an earlier run stopped.

python resume.py
srunbook simulate --nodes 2 -- python resume.py
sbatch ddp_cpu.sbatch resume.py
"""

import os
import sys
import zipfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group: imported later, it would keep the group alive
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS = 5
BATCH_SIZE = 64  # of all processes together
RUN = os.environ.get("SLURM_JOB_NAME", "run").replace("/", "-")  # sbatch --job-name=NAME starts another
if "SLURM_ARRAY_TASK_ID" in os.environ:  # each member of an array trains its own model
    RUN += "-" + os.environ["SLURM_ARRAY_TASK_ID"]
CHECKPOINT = Path(f"resume-{RUN}.checkpoint")  # in a folder that all nodes see; delete it to start over


def write(state, path):
    """Let rank 0 write a file under a temporary name, then rename it: a crash leaves the old one whole."""
    failed = [False]
    if dist.get_rank() == 0:
        beside = path.with_suffix(".tmp")
        try:
            with beside.open("wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())  # on the disk before it gets its name
            beside.replace(path)
        except (OSError, RuntimeError) as error:
            reason = error.__context__ or error  # torch makes a RuntimeError of what the disk says
            cure = "make room there (or is another job saving in it?), then submit the job again"
            print(f"error: cannot save in {path.absolute().parent}: {reason}; {cure}", file=sys.stderr)
            failed = [True]
    dist.broadcast_object_list(failed)
    if failed[0]:
        sys.exit(1)  # all of them: a rank that is left would wait for the others


def save(model, optimizer, epoch):
    """Write the checkpoint; all processes call this."""
    write({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, CHECKPOINT)


def load(model, optimizer):
    """Read the checkpoint if there is one; return the epoch to train next."""
    if not CHECKPOINT.exists():
        return 0
    try:
        if damaged := zipfile.ZipFile(CHECKPOINT).testzip():  # compares the checksums: torch.load does not
            raise ValueError(f"{damaged} has changed")
        state = torch.load(CHECKPOINT, weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    except Exception as error:  # torch raises many kinds
        if dist.get_rank() == 0:
            print(f"error: cannot continue from {CHECKPOINT}; delete it to start over: {error!r}", file=sys.stderr)
        dist.barrier()
        sys.exit(1)
    if dist.get_rank() == 0:
        print(f"resumed before epoch {state['epoch']}", flush=True)
    return state["epoch"]


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
    optimizer = torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9)

    first = load(model, optimizer)

    for epoch in range(first, EPOCHS):
        sampler.set_epoch(epoch)  # a new order each epoch, the same in each run
        total = torch.zeros(())
        for x, y in loader:
            loss = mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total.item() / len(loader) / world_size:.6f}", flush=True)
        save(model, optimizer, epoch + 1)

    write(model.module.state_dict(), Path(f"model-{RUN}.pt"))
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
