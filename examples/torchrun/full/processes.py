"""The processes of a training, started by torchrun: join, agree, and end together."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group: imported later, it keeps the group alive
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record


def setup_distributed(wanted: str = "auto", timeout: float = 600) -> torch.device:
    """Join the other processes, and wait `timeout` seconds at most for a lost one; return the device to compute on.

    The wanted device `cuda` insists on GPUs, `cpu` leaves them alone, and `auto` takes them if PyTorch sees any.
    """
    if "RANK" not in os.environ:
        print(
            "error: RANK is not set. Start this program with torchrun: "
            f"torchrun --standalone --nproc-per-node 2 {sys.argv[0]}",
            file=sys.stderr,
        )
        sys.exit(2)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    cuda = wanted != "cpu" and torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # print whole lines: all write to one log
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=timeout))
    with one_voice():
        if wanted == "cuda" and not cuda:
            raise ValueError(
                f"--device cuda: PyTorch {torch.__version__} sees no GPU on {host()}; "
                "install a CUDA build of PyTorch and ask Slurm for GPUs, or give --device cpu"
            )
    if wanted == "auto" and not cuda and int(os.environ.get("SLURM_GPUS_ON_NODE", 0)):
        say_once("warning: Slurm gave this job GPUs and PyTorch sees none: training on CPUs (--device cuda insists)")
    return device


def everybody(value: Any) -> list[Any]:
    """Return the values of all processes, in the order of their ranks."""
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


@contextmanager
def one_voice() -> Iterator[None]:
    """End all processes if one has a problem, and let only one report it."""
    problem = None
    try:
        yield
    except (ValueError, OSError) as error:
        problem = str(error)
    speakers = [rank for rank, found in enumerate(everybody(problem)) if found]
    if speakers:
        if dist.get_rank() == speakers[0]:
            print(f"error: {problem}", file=sys.stderr, flush=True)
        leave(2)


def leave(status: int) -> NoReturn:
    """End this process once all others have come here: torchrun ends the rest when the first has failed."""
    dist.barrier()
    sys.exit(status)


def run(main: Callable[[], None]) -> NoReturn:
    """Run a program, then leave the process group: by then the model is gone."""
    status: Any = 0
    try:
        record(main)()  # torchrun shows the traceback of the first process that failed
    except SystemExit as end:
        status = end.code
    if dist.is_initialized():
        dist.destroy_process_group()
    sys.exit(status)


def from_rank_0(function: Callable[[], Any]) -> Any:
    """Let rank 0 do something while the others wait; return its result on all ranks."""
    box = [None]
    with one_voice():
        if dist.get_rank() == 0:
            box = [function()]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def host() -> str:
    """Return the name of this node."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def check_world() -> int:
    """Check that the processes are what Slurm allotted; return the number of nodes."""
    hosts = everybody(host())
    nodes, here = len(set(hosts)), hosts.count(host())
    with one_voice():
        allotted = int(os.environ.get("SLURM_NNODES", nodes))
        if nodes != allotted:
            raise ValueError(
                f"{len(hosts)} processes run on {nodes} nodes, but Slurm allotted {allotted}; "
                "start one torchrun on each of them: srun --ntasks-per-node=1"
            )
        gpus = int(os.environ.get("SLURM_GPUS_ON_NODE", 0))
        allotted = gpus or int(os.environ["LOCAL_WORLD_SIZE"])
        if here != allotted:
            raise ValueError(
                f"{here} processes run on {host()}, but Slurm allotted {allotted}; "
                f"give its one torchrun --nproc-per-node={allotted}"
            )
    return nodes


def say_once(line: str) -> None:
    """Print a line on rank 0."""
    if dist.get_rank() == 0:
        print(line)


def announce(device: torch.device) -> None:
    """Print where this process runs; on rank 0 also how many there are."""
    nodes, rank, world, backend = check_world(), dist.get_rank(), dist.get_world_size(), dist.get_backend()
    job = f" job={os.environ['SLURM_JOB_ID']}" if "SLURM_JOB_ID" in os.environ else ""
    print(
        f"rank {rank}/{world} start host={host()} local_rank={os.environ['LOCAL_RANK']} pid={os.getpid()} "
        f"device={device} backend={backend} framework=torch-{torch.__version__}{job}"
    )
    say_once(
        f"Starting distributed training on {world} {'GPUs' if device.type == 'cuda' else 'CPU processes'} "
        f"(nodes x processes: {nodes} x {world // nodes}, backend: {backend}), master node: {host()}"
    )


def conclude(model: nn.Module, **fields: object) -> None:
    """Print how this process ended; `params` is the same on processes whose parameters have the same bits."""
    digest = hashlib.sha256(b"".join(value.cpu().numpy().tobytes() for value in model.state_dict().values()))
    shown = " ".join(f"{name}={value}" for name, value in fields.items())
    print(f"rank {dist.get_rank()}/{dist.get_world_size()} end {shown} params={digest.hexdigest()[:12]}")
