"""Runs of a program of examples/checkpoints on several processes, which can be killed at any instant."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import runpy
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from multiprocessing.connection import Connection
from pathlib import Path

PRELOADED = (
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.checkpoint.state_dict",
    "lightning.pytorch.plugins.io",
    "orbax.checkpoint.v1",
)
"""What the process imports from which ranks are forked."""

GRACE = 0.3
"""Seconds from the death of a rank until the others are killed, as Slurm does."""

PATIENCE = 120.0
"""Seconds after which a run hangs."""

SAME = 1e-5
"""Largest relative difference between two equal losses."""


def prepare() -> None:
    """Let ranks start at once; call it before the first run."""
    os.environ |= {"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
    multiprocessing.set_forkserver_preload(list(PRELOADED))


def environment(rank: int, processes: int, port: int, slurm: bool) -> dict[str, str]:
    """Return what a rank sees: that which srun sets and JAX reads, or that which torchrun sets."""
    if slurm:
        return {
            "SLURM_JOB_ID": "17",
            "SLURM_STEP_NODELIST": "node0",
            "SLURM_STEP_NUM_NODES": "1",
            "SLURM_NTASKS": str(processes),
            "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": str(rank),
            "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
        }
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "bench",
    }


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def be_rank(program: Path, last: int, environ: dict[str, str], printed: Connection) -> None:
    """Run the program as one rank of many, in its own folder."""
    os.environ.update(environ)
    tempfile.tempdir = None  # the server may have looked up another TMPDIR
    os.chdir(program.parent)
    errors = os.open("errors.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    sys.stdout = os.fdopen(os.dup(printed.fileno()), "w", buffering=1)
    printed.close()
    sys.argv = [program.name, str(last)]
    try:
        runpy.run_path(str(program), run_name="__main__")
    except Exception:  # where a script ends, too
        sys.excepthook(*sys.exc_info())
        sys.exit(1)
    sys.stdout.flush()


class Run:
    """A run of a program; what it prints of its steps is read as it comes.

    Args:
        program: The program, alone or beside the checkpoints of an earlier run.
        processes: How many ranks.
        last: The step to train to.
        slurm: Whether the ranks are steps of a Slurm job, else torchrun's.
        environ: Further variables.
    """

    def __init__(self, program: Path, processes: int, last: int, *, slurm: bool, environ: dict[str, str]) -> None:
        context = multiprocessing.get_context("forkserver")
        reading, writing = context.Pipe(duplex=False)
        port = free_port()
        self.times: dict[int, float] = {}
        self.losses: dict[int, float] = {}
        self.ranks = [
            context.Process(
                target=be_rank,
                args=(program, last, environment(rank, processes, port, slurm) | environ, writing),
                daemon=True,
            )
            for rank in range(processes)
        ]
        for rank in self.ranks:
            rank.start()
        writing.close()
        self.news = threading.Condition()
        self.ended = False
        self.reader = threading.Thread(target=self.read, args=(reading,), daemon=True)
        self.reader.start()

    def read(self, reading: Connection) -> None:
        """Note each loss, and when it was printed."""
        with os.fdopen(os.dup(reading.fileno())) as lines:
            reading.close()
            for line in lines:
                found = re.search(r"step (\d+): loss (\S+)", line)
                if found:
                    with self.news:
                        self.times[int(found[1])] = time.monotonic()
                        self.losses[int(found[1])] = float(found[2])
                        self.news.notify_all()
        with self.news:
            self.ended = True
            self.news.notify_all()

    def wait_for_steps(self, count: int) -> bool:
        """Wait until so many steps are printed; return False where they never are."""
        with self.news:
            self.news.wait_for(lambda: len(self.times) >= count or self.ended, timeout=PATIENCE)
            return len(self.times) >= count

    def kill(self, ranks: Iterable[int] | None = None) -> None:
        """Send SIGKILL to some ranks, or to all."""
        for rank in range(len(self.ranks)) if ranks is None else ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.ranks[rank].pid or 0, signal.SIGKILL)

    def end(self) -> str:
        """Wait for the end of all ranks, which is soon once one has failed; return `ended`, `failed` or `hung`."""
        deadline = time.monotonic() + PATIENCE
        while any(rank.is_alive() for rank in self.ranks) and time.monotonic() < deadline:
            if any(rank.exitcode for rank in self.ranks):
                time.sleep(GRACE)
                self.kill()
            time.sleep(0.02)
        hung = any(rank.is_alive() for rank in self.ranks)
        self.kill()
        for rank in self.ranks:
            rank.join()
        self.reader.join()
        return "hung" if hung else "failed" if any(rank.exitcode for rank in self.ranks) else "ended"

    def started_after(self, losses: dict[int, float]) -> int | None:
        """Return the step whose state this run has loaded, 0 for none, by the losses of a run without a break.

        The step that the program prints does not count. None: it had the state of no step.
        """
        found = list(self.losses.values())
        for done in range(len(losses)):
            expected = [losses.get(done + 1 + number, 0.0) for number in range(len(found))]
            if found and all(abs(one - two) <= SAME * two for one, two in zip(found, expected, strict=True)):
                return done
        return None
