"""Find the logs and the folders of results of a job, read the rank lines, and put these together into worlds."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from srunbook._text import read_lines
from srunbook.ranklog import RankEnd, RankLineError, RankStart, parse_rank_lines
from srunbook.slurm import ask_outputs, leading_number

LOG = re.compile(r"\.(?:out|err|log|txt)$|[0-9]$")
"""How the name of a log ends: `ddp-17.out`, `17.log`, `x.o17`."""

RANK_LOG = re.compile(r"rank_[0-9]{1,9}\.log")
MOST_RANK_LINES = 50_000
"""Rank lines that are kept; a job that prints more is not proven."""

RANK = re.compile(rb"rank [^ ]{1,60}/[^ ]{1,60} (?:start|end)")
"""What a line holds that is worth a closer look; most lines do not."""

PRINT = "have every rank print one line at its start and one at its end, as in: rank 0/2 start host=node1"
TORN = "did two ranks write into one line? Write each line with one call, as in: sys.stdout.write(line)"


@dataclass
class Run:
    """A process of a rank, from its start line to its end line."""

    start: RankStart
    log: Path
    end: RankEnd | None = None
    twin: bool = False  # another process of the same rank ran at the same time


@dataclass
class World:
    """The ranks that started together, those of them that printed a start line."""

    size: int
    runs: dict[int, Run]
    times: int  # worlds of this size in the logs
    twins: bool  # two processes of one rank ran at the same time, as far as is known
    moved: bool  # a rank ended on several nodes

    @property
    def hosts(self) -> list[str]:
        """Return the names of its nodes, without domains."""
        return list(dict.fromkeys(run.start.host.split(".")[0] for run in self.runs.values() if run.start.host))


@dataclass
class Logs:
    """What the logs of a job hold."""

    read: list[Path] = field(default_factory=list)
    runs: dict[tuple[str, int], dict[int, list[Run]]] = field(default_factory=dict)
    """The processes of each rank, by the folder of a rank's log and the size of the world."""

    started: bool = False  # a rank printed a start line
    jobs: set[str] = field(default_factory=set)  # that start lines name
    problem: tuple[str, str] | None = None  # the first thing that makes no sense, and what to do about it
    _kept: int = 0

    def add(self, path: Path, group: str = "") -> None:
        """Read a log. Worlds are put together from the logs of one group."""
        self.read.append(path)
        try:
            for line in read_lines(path):
                if b"rank " in line and self._kept <= MOST_RANK_LINES and RANK.search(line):
                    self._take(line.decode("utf-8", errors="replace"), path, group)
        except OSError as error:
            self._fail(f"{path}: {error.strerror or error}", "name another log: --log FILE")

    def _fail(self, problem: str, hint: str) -> None:
        self.problem = self.problem or (problem, hint)

    def _take(self, text: str, path: Path, group: str) -> None:
        try:
            lines = parse_rank_lines([text])
        except RankLineError as error:
            self._fail(f"{path}: {error}", TORN)
            return
        for line in lines:
            self._kept += 1
            if self._kept > MOST_RANK_LINES:
                self._fail(f"{path}: more than {MOST_RANK_LINES} rank lines", "name one log: --log FILE")
                return
            runs = self.runs.setdefault((group, line.world_size), {}).setdefault(line.rank, [])
            if isinstance(line, RankStart):
                self.started = True
                if line.job:
                    self.jobs.add(line.job)
                runs.append(Run(line, path))
                continue
            run = next((run for run in reversed(runs) if run.end is None), None)
            if run:
                run.end = line
                run.twin = run is not runs[-1] and run.log == runs[-1].log
            else:
                self._fail(f"{path}: an end line without a start line: rank {line.rank}/{line.world_size}", PRINT)

    def worlds(self, numbers: Collection[str]) -> list[World]:
        """Return the worlds of a job, without those that were started again before they ended.

        The last start lines of all ranks make the last world of their size, those before them the one before. Start
        lines that name another job are left out.
        """
        worlds: list[World] = []
        for (_, size), ranks in self.runs.items():
            by_rank = {
                rank: [run for run in runs if run.start.job is None or run.start.job in numbers]
                for rank, runs in sorted(ranks.items())
            }
            times = max(map(len, by_rank.values()))
            twins = any(run.twin or run.log != runs[0].log for runs in by_rank.values() for run in runs)
            moved = any(len({run.start.host for run in runs if run.end}) > 1 for runs in by_rank.values())
            for back in range(times, 0, -1):
                runs = {rank: runs[-back] for rank, runs in by_rank.items() if len(runs) >= back}
                ended = len(runs) == size and all(run.end for run in runs.values())
                if back == 1 or ended:
                    worlds.append(World(size, runs, times, twins, moved))
        return worlds


class Folder:
    """The folder where a job was submitted. It is listed once, and Slurm is asked once for the files of an array."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._outputs = cache(ask_outputs)

    @cached_property
    def _names(self) -> list[Path]:
        """Return everything in the folder, in `logs` and in `results` that may be a log, by its name."""
        files = [path for name in (".", "logs", "results") for path in sorted((self.path / name).glob("*"))]
        return [path for path in files if LOG.search(path.name)]

    def results(self, numbers: Iterable[str]) -> list[Path]:
        """Return the folders in `results` whose names hold the number of a job."""
        mine = _holds(numbers)
        return [path for path in sorted((self.path / "results").glob("*")) if mine.search(path.name) and path.is_dir()]

    def logs(self, numbers: Sequence[str], results: Iterable[Path], named: Sequence[Path]) -> Logs:
        """Read the logs of a job: those that are given, or that Slurm names, or with its number, or those of the ranks.

        Slurm is asked by the first number. There is none if it does not know the job.
        """
        logs = Logs()
        told = self._told(numbers)
        for path in dict.fromkeys(named or filter(is_file, told)):
            logs.add(path)
        if logs.started or named:
            return logs
        if told[:1] == [Path("/dev/null")]:
            logs._fail("the job's output went to /dev/null", "submit it again with --output=slurm-%j.out")
        mine, known = _holds(numbers), {*logs.read}
        for path in self._names:
            if mine.search(path.name) and path not in known and is_file(path):
                logs.add(path)
        if logs.started:
            return logs
        for path in (path for folder in results for path in sorted(folder.rglob("rank_*.log"))):
            if RANK_LOG.fullmatch(path.name):
                logs.add(path, str(path.parent))
        return logs

    def _told(self, numbers: Sequence[str]) -> list[Path]:
        """Return the paths that Slurm says a job writes to."""
        if not numbers:
            return []
        outputs = self._outputs(leading_number(numbers[0])) or self._outputs(numbers[0])
        files = next((outputs[number] for number in numbers if number in outputs), None)
        here = self.path.resolve()
        paths = [Path(name) for name in dict.fromkeys([files.output, files.errors])] if files else []
        return [self.path / path.relative_to(here) if path.is_relative_to(here) else path for path in paths]


def is_file(path: Path) -> bool:
    """Return whether there is such a file that can be looked at."""
    try:
        return path.is_file()
    except OSError:
        return False


def _holds(numbers: Iterable[str]) -> re.Pattern[str]:
    """Return what finds a number in a name: 17 in `ddp-17.out` and `17_0.out`, but not in `slurm-56_17.out`.

    The number that Slurm gave an element is one of others: 57 is not the job of `slurm-57_1.out`.
    """
    numbers = list(numbers)
    element = any("_" in number for number in numbers)
    forms = []
    for number in numbers:
        if "_" in number:
            forms.append(number.replace("_", "[-_.]") + r"(?![0-9])")
        else:
            forms.append(r"(?<![0-9]_)" + re.escape(number) + (r"(?![0-9]|_[0-9])" if element else r"(?![0-9])"))
    return re.compile(rf"(?<![0-9])(?:{'|'.join(forms)})") if forms else re.compile(r"(?!)")
