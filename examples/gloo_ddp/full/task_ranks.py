"""Tasks that srun started become ranks of one training: who is who, one voice for errors, a log for each."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn, TextIO

import torch
import torch.distributed as dist
from torch import nn

DEVICES = {"gloo": "cpu", "nccl": "cuda"}
"""Backends, and what each computes on."""


def host() -> str:
    """The name of this node."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def give_up(message: str) -> NoReturn:
    """Ends this task alone: it has not met the others yet, and each of them finds the same."""
    if os.environ.get("SLURM_PROCID", "0") == "0":
        print(f"error: {message}", file=sys.stderr, flush=True)
    sys.exit(2)


def map_task() -> None:
    """Sets what torch.distributed reads, from what Slurm says to this task.

    SLURM_PROCID and SLURM_LOCALID differ from task to task. In the batch shell they are those of the shell itself, 0:
    so a job script cannot export RANK and LOCAL_RANK, and what it exported all the same is overwritten here.
    """
    if "SLURM_JOB_ID" in os.environ and "SLURM_STEP_ID" not in os.environ:
        give_up("in a job, start me with srun: python alone is one task on one node")
    in_step = "SLURM_STEP_ID" in os.environ
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


def join(timeout: float) -> torch.device:
    """Joins this task to the others; returns the device that it computes on."""
    map_task()
    backend = os.environ.get("BACKEND", "gloo")
    if backend not in DEVICES:
        give_up(f"BACKEND is {backend!r}; it is one of {', '.join(DEVICES)}")
    if backend == "nccl" and not torch.cuda.is_available():
        give_up("BACKEND is nccl, which needs GPUs, and there is none here: export BACKEND=gloo")
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(int(os.environ.get("SLURM_CPUS_PER_TASK", "1")))
    device = torch.device("cpu")
    if DEVICES[backend] == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
    return device


@contextmanager
def one_voice() -> Iterator[None]:
    """Ends all ranks when one has a problem, and lets only one of them say it.

    A rank that ended alone would leave the others waiting for it.
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
    """Ends this rank, after all others have come to their end as well.

    Not by sys.exit: a thread of gloo may still be about to free a tensor, and aborts
    the process when Python has already begun to clean up.
    """
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def from_rank_0(function: Callable[[], Any]) -> Any:
    """Lets rank 0 do something while the others wait; all get what it returned."""
    box = [None]
    with one_voice():
        if dist.get_rank() == 0:
            box = [function()]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def everybody(value: Any) -> list[Any]:
    """The values of all ranks, in their order."""
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def check_world() -> int:
    """Checks that the ranks are on as many nodes as Slurm allotted to them; returns the number of nodes."""
    nodes = len(set(everybody(host())))
    with one_voice():
        allotted = int(os.environ.get("SLURM_STEP_NUM_NODES", nodes))
        if nodes != allotted:
            raise ValueError(f"{dist.get_world_size()} ranks run on {nodes} nodes, but the step has {allotted}")
    return nodes


class Tee:
    """Writes what is printed to a log as well."""

    def __init__(self, stream: TextIO, log: TextIO) -> None:
        self.stream, self.log = stream, log

    def write(self, text: str) -> int:
        self.log.write(text)
        return self.stream.write(text)

    def flush(self) -> None:
        self.log.flush()
        self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def open_log(folder: Path) -> None:
    """From here on all that this rank prints is also in rank_<R>.log, tracebacks included."""
    log = (folder / f"rank_{dist.get_rank()}.log").open("a", encoding="utf-8", buffering=1)
    sys.stdout = Tee(sys.stdout, log)
    sys.stderr = Tee(sys.stderr, log)


def say(line: str) -> None:
    """Prints a line in one piece."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def fingerprint(model: nn.Module) -> str:
    """Return the first 12 digits of the SHA-256 of the parameters: equal where all bits are."""
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.cpu().numpy().tobytes())
    return digest.hexdigest()[:12]
