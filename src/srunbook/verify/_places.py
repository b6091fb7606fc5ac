"""Find the folder of results and the logs of a job, by the numbers in their names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from srunbook.slurm import leading_number
from srunbook.verify._logs import Log, read_log


class TargetError(ValueError):
    """What was given is neither a job id nor a folder of results."""


class Places:
    """What lies in the folder of submission, listed once for all elements of an array.

    Args:
        here: That folder.
    """

    def __init__(self, here: Path) -> None:
        self.here = here

    @cached_property
    def _folders(self) -> dict[str, list[Path]]:
        return _by_number(self.here / "results", "")

    @cached_property
    def _outputs(self) -> list[dict[str, list[Path]]]:
        return [_by_number(self.here / name, ".out") for name in ("results", "", "logs")]

    def results_of(self, job: str, numbers: Sequence[str]) -> Path | None:
        """Find the folder of results of a job, or None.

        Args:
            job: The job, as messages name it.
            numbers: The numbers that may end the name of its folder.

        Raises:
            TargetError: There are several, or the folder is a link to that of another job.
        """
        found = sorted({path for number in numbers for path in self._folders.get(number, []) if path.is_dir()})
        if len(found) > 1:
            names = " and ".join(map(str, found))
            raise TargetError(
                f"job {job} has several folders of results, {names}: give one of them in place of the job id"
            )
        others = numbers_in(found[0].resolve().name) if found else []
        if others and not {*numbers, *map(leading_number, numbers)} & {*others}:
            raise TargetError(f"{found[0]} is a link to {found[0].resolve()}, the folder of another job: give that one")
        return found[0] if found else None

    def logs_of(
        self, numbers: Iterable[str], results: Path | None, told: Callable[[], Mapping[str, Path]] = dict
    ) -> tuple[tuple[Log, ...], tuple[str, ...]]:
        """Read the logs of the ranks, or else that of the whole job; return the names that were looked for, too.

        Args:
            numbers: The numbers by which the job is known.
            results: Its folder of results, or None.
            told: Returns the path that Slurm tells of each number.

        Raises:
            OSError: A log cannot be read, or is no regular file.
        """
        if results:
            ranks = ((path, re.fullmatch(r"rank_([0-9]{1,9})\.log", path.name)) for path in results.glob("rank_*.log"))
            found = sorted((int(match[1]), path) for path, match in ranks if match)
            if found:
                return tuple(read_log(path, str(path), rank) for rank, path in found), ()
        numbers, known = list(numbers), told()
        places = [self._shown(known[number]) for number in numbers if number in known]
        places += [results.with_name(f"{results.name}.out")] if results and results.name else []
        for number in numbers:
            beside, here, below = (outputs.get(number, []) for outputs in self._outputs)
            usual = [self.here / f"slurm-{number}.out", self.here / "logs" / f"slurm-{number}.out"]
            # slurm-56_3.out is the log of element 3 of array 56, not of job 3.
            named = [path for path in (*here, *below) if not re.fullmatch(r"slurm-[0-9]+_[0-9]+\.out", path.name)]
            places += [*beside, *usual, *named]
        places = list(dict.fromkeys(places))
        log = next(filter(_is_file, places), None)
        expected = [results / "rank_0.log"] if results else []
        return (read_log(log, str(log), None),) if log else (), tuple(map(str, [*expected, *places]))

    def _shown(self, path: Path) -> Path:
        """Return a path as it is named from here."""
        try:
            return self.here / path.relative_to(self.here.resolve())
        except ValueError:
            return path


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long, or a folder of another user
        return False


def _by_number(folder: Path, ending: str) -> dict[str, list[Path]]:
    """List what is in a folder by what its name ends with: `a_56_3.out` by `3` and by `56_3`."""
    found: dict[str, list[Path]] = {}
    try:
        paths = sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # a log whose name is known may be there still
        return found
    for path in paths:
        words = path.name.removesuffix(ending).split("_")
        if path.name.endswith(ending):
            for length in range(1, min(3, len(words))):
                found.setdefault("_".join(words[-length:]), []).append(path)
    return found


def numbers_in(name: str) -> list[str]:
    """Return the numbers of jobs with which the name of a folder may end."""
    match = re.search(r"_([1-9][0-9]{0,9}[_+])?(0|[1-9][0-9]{0,9})$", name)
    found = [f"{match[1]}{match[2]}"] if match and match[1] else []
    return found + ([match[2]] if match and match[2] != "0" and "+" not in (match[1] or "") else [])
