"""Read logs, and put their rank lines together into worlds."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from srunbook._text import read_lines
from srunbook.ranklog import RankEnd, RankLineError, RankStart, parse_rank_lines

MOST_RANK_LINES = 50_000
"""Rank lines that are kept; a job that prints more is not proven."""

TORN = "did two ranks write into one line? Write each line with one call, as in: sys.stdout.write(line)"

RANK = re.compile(rb"rank [^ ]{1,60}/[^ ]{1,60} (?:start|end)")
ODD = re.compile(rb"nan|inf", re.IGNORECASE)
"""What a line holds that is worth a closer look; most lines do not."""

MOST_WORLDS = 1000
"""Worlds of one size that are checked, the last ones."""

LOSS = re.compile(r"\bepoch\b.*?\b(\w{0,40}loss)[ =:]+(-?(?:nan|inf))\b", re.IGNORECASE)
"""A line of rank 0 such as `epoch 3: loss nan`."""


@dataclass
class Run:
    """A process of a rank, from its start line to its end line.

    Args:
        start: The start line.
        log: The log that holds it.
        end: The end line, or None if there is none.
        twin: Whether another process of the same rank ran at the same time.
    """

    start: RankStart
    log: Path
    end: RankEnd | None = None
    twin: bool = False


@dataclass
class World:
    """The ranks that started together.

    Args:
        size: How many ranks they say there are.
        runs: Those that printed a start line, by rank.
        times: How many worlds of this size the logs hold.
        twins: Whether two processes of one rank ran at the same time, as far as is known.
        moved: Whether a rank ended on several nodes.
        last: Whether no world of this size came after it.
    """

    size: int
    runs: dict[int, Run]
    times: int = 1
    twins: bool = False
    moved: bool = False
    last: bool = True

    @property
    def hosts(self) -> list[str]:
        """Return the names of its nodes, without domains."""
        return list(dict.fromkeys(run.start.host.split(".")[0] for run in self.runs.values() if run.start.host))


@dataclass
class Logs:
    """The rank lines in the logs of a job.

    Args:
        read: The logs that were read.
        runs: The processes of each rank, by the group of the log and the size of the world.
        stray: The first end line without a start line, in words.
        problem: The first thing that could not be read, in words, and what to do about it.
        not_finite: The first loss of an epoch that is not finite, in words.
        lines: The first two lines of output that are not empty.
    """

    read: list[Path] = field(default_factory=list)
    runs: dict[tuple[str, int], dict[int, list[Run]]] = field(default_factory=dict)
    stray: str = ""
    problem: tuple[str, str] | None = None
    not_finite: str = ""
    lines: list[str] = field(default_factory=list)
    _kept: int = 0

    def add(self, path: Path, group: str = "") -> None:
        """Read a log. Worlds are put together from the logs of one group."""
        if path in self.read:
            return
        self.read.append(path)
        try:
            for line in read_lines(path):
                if len(self.lines) < 2 and line.strip():
                    self.lines.append(line.decode("utf-8", errors="replace").strip()[:500])
                if b"rank " in line and self._kept <= MOST_RANK_LINES and RANK.search(line):
                    self._take(line.decode("utf-8", errors="replace"), path, group)
                if b"epoch" in line and not self.not_finite and ODD.search(line):
                    found = LOSS.search(line[:1000].decode("utf-8", errors="replace"))
                    self.not_finite = f"{path}: {found[0]}" if found else ""
        except OSError as error:
            self.problem = self.problem or (f"{path}: {error.strerror or error}", "name another log: --log FILE")

    def _take(self, text: str, path: Path, group: str) -> None:
        try:
            lines = parse_rank_lines([text])
        except RankLineError as error:
            self.problem = self.problem or (f"{path}: {error}", TORN)
            return
        for line in lines:
            self._kept += 1
            if self._kept > MOST_RANK_LINES:
                self.problem = self.problem or (
                    f"{path}: more than {MOST_RANK_LINES} rank lines",
                    "name one log: --log FILE",
                )
                return
            runs = self.runs.setdefault((group, line.world_size), {}).setdefault(line.rank, [])
            if isinstance(line, RankStart):
                self.not_finite = "" if line.rank == 0 else self.not_finite  # of an earlier attempt
                runs.append(Run(line, path))
                continue
            run = next((run for run in reversed(runs[-100:]) if run.end is None), None)
            if run is None:
                self.stray = self.stray or f"rank {line.rank}/{line.world_size} in {path}"
                continue
            run.end = line
            run.twin = run is not runs[-1] and run.log == runs[-1].log

    @property
    def started(self) -> bool:
        """Return whether a rank printed a start line."""
        return any(runs for ranks in self.runs.values() for runs in ranks.values())

    def worlds(self, numbers: Collection[str]) -> list[World]:
        """Return the worlds of a job, without those that were started again before they ended.

        The last start lines of all ranks make the last world of their size, those before them the one before.

        Args:
            numbers: The numbers of the job. Start lines that name another one are left out.
        """
        found: list[World] = []
        for (_, size), ranks in self.runs.items():
            own = {
                rank: [run for run in runs if run.start.job is None or run.start.job in numbers]
                for rank, runs in sorted(ranks.items())
            }
            times = max(map(len, own.values()), default=0)
            twins = any(run.twin or run.log != runs[0].log for runs in own.values() for run in runs)
            moved = any(len({run.start.host for run in runs if run.end}) > 1 for runs in own.values())
            for back in range(min(times, MOST_WORLDS), 0, -1):
                runs = {rank: runs[-back] for rank, runs in own.items() if len(runs) >= back}
                ended = len(runs) == size and all(run.end for run in runs.values())
                if back == 1 or ended:
                    found.append(World(size, runs, times, twins, moved, last=back == 1))
        return found
