"""The ranks of a training, started by srun: join, agree, log, and end together."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn, TextIO

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group: imported later, it would keep the group alive
from torch import nn


def host() -> str:
    """Return the name of this node."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def give_up(message: str) -> NoReturn:
    """End this task before it meets the others: each of them finds the same problem, and the first reports it."""
    if os.environ.get("SLURM_PROCID", "0") == "0":
        print(f"error: {message}", file=sys.stderr, flush=True)
    sys.exit(2)


def map_task() -> None:
    """Set the variables that torch.distributed reads, from those that srun sets for this task.

    The job script cannot export them: in it, SLURM_PROCID and SLURM_LOCALID are 0.
    """
    in_step = "SLURM_STEP_ID" in os.environ
    if "SLURM_JOB_ID" in os.environ and not in_step:
        give_up("in a job, start this program with srun: without it, only one task runs, on one node")
    sources = {"RANK": ("SLURM_PROCID", "0"), "LOCAL_RANK": ("SLURM_LOCALID", "0"), "WORLD_SIZE": ("SLURM_NTASKS", "1")}
    for name, (source, alone) in sources.items():
        os.environ[name] = os.environ[source] if in_step else alone
    if "MASTER_ADDR" not in os.environ:
        first = os.environ.get("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1")
        if not first.startswith("127."):  # several machines
            give_up(
                "MASTER_ADDR is not set; in the job script: "
                'export MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"'
            )
        os.environ["MASTER_ADDR"] = first
    os.environ.setdefault("MASTER_PORT", str(25000 + int(os.environ.get("SLURM_JOB_ID", "4500")) % 7000))


def join(timeout: float = 600) -> torch.device:
    """Join the other tasks, and wait `timeout` seconds at most for a lost one; return the device to compute on."""
    map_task()
    backend = os.environ.get("BACKEND", "gloo")
    if backend not in ("gloo", "nccl"):
        give_up(f"BACKEND is {backend!r}: give gloo or nccl")
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(int(os.environ.get("SLURM_CPUS_PER_TASK", "1")))
    device = torch.device("cpu")
    if backend == "nccl":
        if not torch.cuda.is_available():
            give_up("BACKEND is nccl, which needs GPUs, and PyTorch sees none: export BACKEND=gloo")
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # print whole lines: all write to one log
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
    return device


def everybody(value: Any) -> list[Any]:
    """Return the values of all ranks, in their order."""
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


@contextmanager
def one_voice() -> Iterator[None]:
    """End all ranks if one has a problem, and let only one report it."""
    problem = None
    try:
        yield
    except (ValueError, OSError) as error:
        problem = str(error)
    speakers = [rank for rank, found in enumerate(everybody(problem)) if found]
    if speakers:
        if dist.get_rank() == speakers[0]:
            print(f"error: {problem}", file=sys.stderr, flush=True)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # srun terminates the rest when the first has failed
        dist.barrier()
        sys.exit(2)


def refuse(message: str) -> None:
    """End all ranks because of an option: each of them has read the same one."""
    join()
    with one_voice():
        raise ValueError(message)


def from_rank_0(function: Callable[[], Any]) -> Any:
    """Let rank 0 do something while the others wait; return its result on all ranks."""
    box = [None]
    with one_voice():
        if dist.get_rank() == 0:
            box = [function()]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def run(main: Callable[[], None]) -> NoReturn:
    """Run a program, then leave the process group: by then the model is gone."""
    status: Any = 0
    try:
        main()
    except SystemExit as end:
        status = end.code
    if dist.is_initialized():
        dist.destroy_process_group()
    sys.exit(status)


class Tee(io.TextIOBase):
    """A stream that writes to several others."""

    def __init__(self, *streams: TextIO) -> None:
        self.streams = streams

    def write(self, text: str) -> int:
        for stream in self.streams:
            stream.write(text)
        return len(text)

    def flush(self) -> None:
        for stream in self.streams:
            stream.flush()


def say_once(line: str) -> None:
    """Print a line on rank 0."""
    if dist.get_rank() == 0:
        print(line)


def announce(device: torch.device, folder: Path, epochs: int) -> None:
    """Print where this rank runs, and from here on everything into rank_<R>.log as well, tracebacks included."""
    rank, world, backend = dist.get_rank(), dist.get_world_size(), dist.get_backend()
    with one_voice():
        log = (folder / f"rank_{rank}.log").open("a", encoding="utf-8", buffering=1)
    sys.stdout, sys.stderr = Tee(sys.stdout, log), Tee(sys.stderr, log)
    nodes = len(set(everybody(host())))
    allotted = int(os.environ.get("SLURM_STEP_NUM_NODES", nodes))
    with one_voice():
        if nodes != allotted:
            raise ValueError(f"{world} ranks run on {nodes} nodes, but the step has {allotted}")
    job = f" job={os.environ['SLURM_JOB_ID']}" if "SLURM_JOB_ID" in os.environ else ""
    print(
        f"rank {rank}/{world} start host={host()} local_rank={os.environ['LOCAL_RANK']} pid={os.getpid()} "
        f"device={device} backend={backend} framework=torch-{torch.__version__}{job} epochs={epochs}"
    )
    say_once(f"DDP on {world} ranks on {nodes} nodes, backend {backend}, rank 0 on {host()}")


def conclude(model: nn.Module, **fields: object) -> None:
    """Print how this rank ended; `params` is the same on ranks whose parameters have the same bits."""
    digest = hashlib.sha256(b"".join(value.cpu().numpy().tobytes() for value in model.state_dict().values()))
    shown = " ".join(f"{name}={value}" for name, value in fields.items())
    print(f"rank {dist.get_rank()}/{dist.get_world_size()} end {shown} params={digest.hexdigest()[:12]}")
