"""The processes of a training: join, agree, and end together. The full programs of the torchrun guide share this."""

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
    """Join this process to the others; return the device that it computes on.

    Args:
        wanted: `cuda` insists on GPUs, `cpu` leaves them alone, `auto` takes them where PyTorch sees some.
        timeout: Seconds to wait for a lost process.
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
    device = torch.device("cpu")
    if wanted != "cpu" and torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=timedelta(seconds=timeout))
    with one_voice():
        if wanted == "cuda" and device.type != "cuda":
            raise ValueError(
                f"--device cuda: PyTorch {torch.__version__} sees no GPU on {host()}; "
                "install a CUDA build of PyTorch and ask Slurm for GPUs, or give --device cpu"
            )
    unseen = wanted == "auto" and device.type == "cpu" and int(os.environ.get("SLURM_GPUS_ON_NODE", 0))
    if unseen and dist.get_rank() == 0:
        say("warning: Slurm gave this job GPUs and PyTorch sees none: training on CPUs (--device cuda insists)")
    return device


@contextmanager
def one_voice() -> Iterator[None]:
    """End all processes when one has a problem, and let only one of them report it.

    A process that ended alone would leave the others waiting for it.
    """
    problem = None
    try:
        yield
    except (ValueError, OSError) as error:
        problem = str(error)
    problems: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(problems, problem)
    speaker = next((rank for rank, found in enumerate(problems) if found), None)
    if speaker is None:
        return
    if dist.get_rank() == speaker:
        print(f"error: {problem}", file=sys.stderr, flush=True)
    leave(2)


def leave(status: int) -> NoReturn:
    """End this process, but only when all others have come here: torchrun kills the rest when one has failed."""
    dist.barrier()
    sys.exit(status)


def run(main: Callable[[], None]) -> NoReturn:
    """Run a program to its end, then leave the process group: when `main` has returned, the model is gone."""
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
    hosts = [""] * dist.get_world_size()
    dist.all_gather_object(hosts, host())
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


def say(line: str) -> None:
    """Print a line in one piece: all processes of a node write to one log."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def fingerprint(model: nn.Module) -> str:
    """Return the first 12 digits of the SHA-256 of the parameters: equal if all bits are equal."""
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.cpu().numpy().tobytes())
    return digest.hexdigest()[:12]


def announce(device: torch.device) -> None:
    """Print where this process runs; on rank 0 also how many there are."""
    nodes = check_world()
    rank, world = dist.get_rank(), dist.get_world_size()
    job = f" job={os.environ['SLURM_JOB_ID']}" if "SLURM_JOB_ID" in os.environ else ""
    say(
        f"rank {rank}/{world} start host={host()} local_rank={os.environ['LOCAL_RANK']} pid={os.getpid()} "
        f"device={device} backend={dist.get_backend()} framework=torch-{torch.__version__}{job}"
    )
    if rank == 0:
        say(
            f"Starting distributed training on {world} {'GPUs' if device.type == 'cuda' else 'CPU processes'} "
            f"(nodes x processes: {nodes} x {world // nodes}, backend: {dist.get_backend()}), master node: {host()}"
        )
