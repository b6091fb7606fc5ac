"""Train a small network on all GPUs of all nodes, and continue without a node that dies.

    sbatch elastic.sbatch

After each epoch, and before the time limit, it is saved in elastic-NAME.checkpoint, where NAME is the job's.
"""

import os
import shutil
import signal
import subprocess
import sys
import zipfile
from datetime import timedelta
from itertools import islice
from pathlib import Path

signals = []  # from Slurm: SIGUSR1 before the time limit
# torchrun ends ranks with SIGTERM before each restart, so don't catch it, except after SIGUSR1:
# when that comes a second time, torchrun passes SIGTERM on
signal.signal(signal.SIGUSR1, lambda *got: (signals.append(got[0]), signal.signal(signal.SIGTERM, signal.SIG_IGN)))

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or its threads never end
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS = 5
BATCH_SIZE = 64  # of all processes together
TIMEOUT = 60  # seconds without an answer, then a node is dead: more than any rank ever waits for another
RUN = os.environ.get("SLURM_JOB_NAME", "run").replace("/", "-")  # sbatch --job-name=NAME starts another
if "SLURM_ARRAY_TASK_ID" in os.environ:  # each member of an array trains its own model
    RUN += "-" + os.environ["SLURM_ARRAY_TASK_ID"]
CHECKPOINT = Path(f"elastic-{RUN}.checkpoint")  # in a folder that all nodes see; delete it to start over


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


def save(model, optimizer, **progress):
    """Write the checkpoint; all processes call this."""
    write({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), **progress}, CHECKPOINT)


def load(model, optimizer, device):
    """Read the checkpoint if there is one; return how far the training had got."""
    if not CHECKPOINT.exists():
        return {}
    try:
        if damaged := zipfile.ZipFile(CHECKPOINT).testzip():  # compares the checksums: torch.load does not
            raise ValueError(f"{damaged} has changed")
        state = torch.load(CHECKPOINT, map_location=device, weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    except Exception as error:  # torch raises many kinds
        if dist.get_rank() == 0:
            print(f"error: cannot continue from {CHECKPOINT}; delete it to start over: {error!r}", file=sys.stderr)
        dist.barrier()
        sys.exit(1)
    if dist.get_rank() == 0:
        print(f"resumed in epoch {state['epoch']} after batch {state.get('done', 0)}")
    return state


def agreed(heard, device):
    """Tell whether a signal has reached any process: it arrives at different times."""
    count = torch.tensor(int(heard), device=device)
    dist.all_reduce(count)
    return count.item() > 0


def requeue():
    """Ask Slurm to put this job back into the queue; it ends the job at once."""
    job = os.environ.get("SLURM_JOB_ID")
    if "SLURM_ARRAY_TASK_ID" in os.environ:  # this member alone, not the whole array
        job = "{SLURM_ARRAY_JOB_ID}_{SLURM_ARRAY_TASK_ID}".format_map(os.environ)
    if job and shutil.which("scontrol"):
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # a second one would end scontrol, which inherits this
        subprocess.run(["scontrol", "requeue", job], check=True)
    else:  # outside of Slurm, or in a container without its commands
        print("saved; to continue, submit the job again")


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
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

    progress = load(model, optimizer, device)
    first, done = progress.get("epoch", 0), progress.get("done", 0)
    total = torch.tensor(progress.get("total", 0.0), device=device)

    for epoch in range(first, EPOCHS):
        sampler.set_epoch(epoch)  # a new order each epoch, the same in each run
        for x, y in islice(loader, done, None):  # leave out the batches that are done
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.detach()
            done += 1
            if agreed(bool(signals), device):
                dist.all_reduce(total)
                save(model, optimizer, epoch=epoch, done=done, total=total.item() / world_size)
                again = agreed(signal.SIGUSR1 in signals, device)  # SIGTERM alone may come from scancel
                if rank == 0:
                    print(f"stopped in epoch {epoch} after batch {done}")
                    if again:
                        requeue()
                dist.barrier()
                return
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total.item() / len(loader) / world_size:.6f}")
        save(model, optimizer, epoch=epoch + 1, done=0, total=0.0)
        total.zero_()
        done = 0

    write(model.module.state_dict(), Path(f"model-{RUN}.pt"))
    print(f"rank {rank}/{world_size} end")


if __name__ == "__main__":
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", timeout=timedelta(seconds=TIMEOUT))
    main()
    dist.destroy_process_group()
