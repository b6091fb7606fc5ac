"""Run programs of the guides on several ranks, each forked from a process that has imported torch: `preloaded.py`.

What torchrun would do besides (find the nodes, kill the rest) is not imitated.
"""

from __future__ import annotations

import csv
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.patience import PATIENCE
from support.ports import free_port
from support.preloaded import preloaded
from support.programs import edited, losses

from srunbook.ranklog import RankEnd, parse_rank_lines

RANK = f"""
import faulthandler, os, runpy, sys, traceback
faulthandler.dump_traceback_later({PATIENCE - 5}, file=2)  # where a rank stands that hangs
before, *sys.argv = sys.argv[1:]
del sys.path[0]  # the folder that it runs in
status = 1
try:
    exec(before, {{}})
    runpy.run_path(sys.argv[0], run_name="__main__")
    status = 0
except SystemExit as end:
    status = end.code if isinstance(end.code, int) else 1
    isinstance(end.code, str) and print(end.code, file=sys.stderr)  # as Python does
except BaseException:
    traceback.print_exc()
finally:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
"""
"""What each rank runs: code that comes before a program, and the program."""


AS_TASK = (
    "import os; e = os.environ\n"
    "e.update(SLURM_STEP_ID='0', SLURM_PROCID=e['RANK'], SLURM_LOCALID=e['LOCAL_RANK'], SLURM_NTASKS=e['WORLD_SIZE'])\n"
    "e.update(SLURM_JOB_ID='17', SLURM_STEP_NUM_NODES=e['SLURM_NNODES'])\n"
    "del e['RANK'], e['LOCAL_RANK'], e['WORLD_SIZE']\n"
)
"""Comes before a program, and turns its rank into a task of srun, which knows only Slurm's variables."""


@dataclass(frozen=True)
class Outcome:
    """What came of a run on several ranks.

    Args:
        ranks: Status, stdout and stderr of each.
        folder: Where it left its files.
    """

    ranks: list[dict[str, Any]]
    folder: Path

    @property
    def statuses(self) -> list[int]:
        """Exit status of each rank."""
        return [rank["status"] for rank in self.ranks]

    @property
    def text(self) -> str:
        """All that was printed."""
        return "\n".join(rank["stdout"] + rank["stderr"] for rank in self.ranks)

    @property
    def errors(self) -> list[str]:
        """Lines that say what is wrong, of all ranks."""
        return [line for rank in self.ranks for line in rank["stderr"].splitlines() if line.startswith("error: ")]

    @property
    def refusal(self) -> str:
        """The one line that says why all ranks ended with status 2."""
        assert set(self.statuses) == {2}, self.text
        (line,) = self.errors
        return line

    @property
    def losses(self) -> list[float]:
        """Losses that were printed at the ends of lines, in their order."""
        return losses(self.text)

    def table(self, name: str = "metrics.csv") -> list[dict[str, str]]:
        """Rows of a file with columns."""
        with (self.folder / name).open(encoding="utf-8") as file:
            return list(csv.DictReader(file))

    @property
    def fingerprint(self) -> str:
        """The one fingerprint that all ranks print at the end."""
        assert set(self.statuses) == {0}, self.text
        ends = [line for line in parse_rank_lines(self.text.splitlines()) if isinstance(line, RankEnd)]
        assert len(ends) == len(self.ranks)
        (fingerprint,) = {end.params for end in ends}
        assert fingerprint is not None
        return fingerprint


@dataclass(frozen=True)
class Interpreter:
    """What `forking` gives.

    Args:
        python: The command that takes the place of Python.
        modules: Folder of what the programs import.
    """

    python: Path
    modules: Path


@contextmanager
def forking(modules: Path, *imported: str) -> Iterator[Interpreter]:
    """Start a process that ranks are forked from.

    Args:
        modules: Folder of what the programs import.
        imported: What to import besides, once for all ranks.
    """
    with tempfile.TemporaryDirectory() as folder, preloaded(Path(folder), *imported) as python:
        yield Interpreter(python, modules)


class Forked:
    """Runs programs on forked ranks.

    Args:
        interpreter: What they are forked from.
        folder: Where runs without a folder of their own take place.
    """

    def __init__(self, interpreter: Interpreter, folder: Path) -> None:
        self.interpreter = interpreter
        self.folder = folder
        self.runs = 0

    def new_folder(self) -> Path:
        """Name a folder that no run has had; the program makes it."""
        self.runs += 1
        return self.folder / f"run{self.runs}"

    def run(
        self,
        argv: list[str],
        *,
        nodes: int,
        processes: int,
        before: str,
        environ: Mapping[str, str],
    ) -> list[dict[str, Any]]:
        """Run a program on `nodes` x `processes` ranks, and kill those that hang; return status and output of each."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        own |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(self.interpreter.modules)}
        own |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "SLURM_NNODES": str(nodes)}
        own |= {"WORLD_SIZE": str(nodes * processes), "LOCAL_WORLD_SIZE": str(processes)}
        command = [str(self.interpreter.python), "-c", RANK, before, *argv]
        with tempfile.TemporaryDirectory() as name, ExitStack() as files:
            ranks = []
            for rank in range(nodes * processes):
                out, err = (files.enter_context(Path(name, f"{kind}.{rank}").open("wb")) for kind in ("out", "err"))
                node, local = divmod(rank, processes)
                place = {"RANK": str(rank), "LOCAL_RANK": str(local), "SLURMD_NODENAME": f"node{node}", **environ}
                ranks.append(
                    subprocess.Popen(
                        command,
                        cwd=self.folder,
                        env={**own, **place},
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=err,
                    )
                )
            deadline = time.monotonic() + PATIENCE
            for process in ranks:
                try:
                    process.wait(max(0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            return [
                {
                    "status": process.returncode,
                    "stdout": Path(name, f"out.{rank}").read_text(),
                    "stderr": Path(name, f"err.{rank}").read_text(),
                }
                for rank, process in enumerate(ranks)
            ]


Run = Callable[..., Outcome]


@contextmanager
def running(examples: Path, folders: pytest.TempPathFactory, *imported: str) -> Iterator[Run]:
    """Give what runs a program on forked ranks, in a folder of its own unless one is given, with some text replaced."""
    with forking(examples, *imported) as interpreter:

        def start(
            name: str,
            processes: int,
            *arguments: object,
            nodes: int = 1,
            folder: Path | None = None,
            edit: tuple[str, str] | None = None,
            edits: Iterable[tuple[str, str]] = (),
            before: str = "",
            **environ: str,
        ) -> Outcome:
            folder = folder or folders.mktemp("run")
            argv = [str(edited(examples / name, folder, [*edits, *([edit] if edit else [])])), *map(str, arguments)]
            ranks = Forked(interpreter, folder)
            return Outcome(ranks.run(argv, nodes=nodes, processes=processes, before=before, environ=environ), folder)

        yield start
