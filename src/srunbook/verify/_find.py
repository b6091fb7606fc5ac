"""Find the logs and the folders of results of a job."""

from __future__ import annotations

import heapq
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from srunbook.slurm import OutputFiles, leading_number
from srunbook.verify._logs import Logs

LOG = re.compile(r"\.(?:out|err|log|txt)$|[0-9]$")
"""How the name of a log ends: `ddp-17.out`, `17.log`, `x.o17`."""

RANK_LOG = re.compile(r"rank_[0-9]{1,9}\.log")
MOST_FILES = 10_000
"""Files of one job that are read, and folders below its results that are searched."""


class Folder:
    """The folder where a job was submitted.

    Args:
        path: Its path.
        given: The logs to read, if they are not to be looked for.
        outputs: Returns the files that Slurm says a job writes to, by its number.
        step_outputs: Returns those that its steps write to.
    """

    def __init__(
        self,
        path: Path,
        given: Sequence[Path],
        outputs: Callable[[str], Mapping[str, OutputFiles]],
        step_outputs: Callable[[str], Sequence[str]],
    ) -> None:
        self.path = path
        self.given = given
        self.outputs = outputs
        self.step_outputs = step_outputs
        self._told: dict[str, Mapping[str, OutputFiles]] = {}

    @cached_property
    def names(self) -> list[Path]:
        """Return everything in the folder, in `logs` and in `results` that may be a log, by its name."""
        found = [path for name in (".", "logs", "results") for path in _listed(self.path / name)]
        return [path for path in found if LOG.search(path.name)]

    def results(self, numbers: Iterable[str]) -> list[Path]:
        """Return the folders in `results` whose names hold the number of a job."""
        mine = _holds(numbers)
        return [path for path in _listed(self.path / "results") if mine.search(path.name) and path.is_dir()]

    def logs(self, numbers: Sequence[str], results: Iterable[Path]) -> Logs:
        """Read the logs of a job: those that Slurm names, or else files with its number, or else those of the ranks.

        Args:
            numbers: Its numbers, first the one by which Slurm is asked; none if Slurm does not know it.
            results: Its folders of results.
        """
        logs = Logs()
        for path in self.given or self._told_logs(numbers):
            logs.add(path)
        if self.given:
            return logs
        mine = _holds(numbers)
        named = [path for path in self.names if mine.search(path.name)] if numbers and not logs.started else []
        for path in named[:MOST_FILES]:
            if _is_file(path):
                logs.add(path)
        for folder in results if not logs.started else ():
            for path in walk(folder, RANK_LOG):
                logs.add(path, str(path.parent))
        return logs

    def nearest(self, numbers: Sequence[str]) -> list[str]:
        """Return names that hold a number, those nearest to the number of a job first."""
        wanted = int(leading_number(numbers[0])) if numbers else 0

        def distance(path: Path) -> int:
            found = [abs(int(number) - wanted) for number in re.findall(r"[0-9]{1,10}", path.name)]
            return min(found, default=10**10)

        return [_shown(path, self.path) for path in heapq.nsmallest(3, self.names, key=distance)]

    def _told_logs(self, numbers: Sequence[str]) -> list[Path]:
        if not numbers:
            return []
        job = leading_number(numbers[0])
        if job not in self._told:
            self._told[job] = self.outputs(job) or self.outputs(numbers[0])
        files = next((self._told[job][number] for number in numbers if number in self._told[job]), None)
        named = [files.output, files.errors] if files else []
        named += self.step_outputs(numbers[0])
        paths = [Path(_shown(Path(name), self.path)) for name in dict.fromkeys(named)]
        return [path for path in paths if _is_file(path)]


def walk(folder: Path, name: re.Pattern[str]) -> list[Path]:
    """Return the files of a name in a folder of results and in the folders below it, in order."""
    found: list[Path] = []
    for number, (place, folders, files) in enumerate(os.walk(folder)):
        folders.sort()
        if number > MOST_FILES:
            break
        found += [Path(place, file) for file in sorted(files) if name.fullmatch(file)]
    return found[:MOST_FILES]


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


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _shown(path: Path, folder: Path) -> str:
    """Return a path as it is named from a folder."""
    try:
        return str(folder / path.relative_to(folder.resolve()))
    except ValueError:
        return str(path)
