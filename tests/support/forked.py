"""What came of programs on forked ranks, and who asks `forked_ranks.py` for it. Shared by the tests of the guides."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srunbook.ranklog import RankEnd, parse_rank_lines


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


class Forked:
    """Runs programs on forked ranks.

    Args:
        process: The script that forks.
        folder: Where runs without a folder of their own take place.
    """

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process = process
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
        """Run a program on `nodes` x `processes` ranks; return status and output of each."""
        order = {"argv": argv, "nodes": nodes, "processes": processes, "environ": dict(environ), "before": before}
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps({**order, "directory": str(self.folder)}) + "\n")
        self.process.stdin.flush()
        ranks: list[dict[str, Any]] = json.loads(self.process.stdout.readline())
        return ranks


@contextmanager
def forking(modules: Path, *imported: str) -> Iterator[subprocess.Popen[str]]:
    """Start the script that forks ranks.

    Args:
        modules: Folder of what the programs import.
        imported: What to import besides, once for all ranks.
    """
    script = Path(__file__).with_name("forked_ranks.py")
    own = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    own["OMP_NUM_THREADS"] = "1"
    with subprocess.Popen(
        [sys.executable, script, modules, *imported], env=own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        assert process.stdin
        process.stdin.close()
