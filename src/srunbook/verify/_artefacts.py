"""Collect what a job left behind: accounting, logs, files of results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from srunbook._files import read_whole, write_whole
from srunbook._text import read_lines
from srunbook.ranklog import RankStart
from srunbook.slurm import (
    Accounting,
    OutputFiles,
    SlurmParseError,
    ask_outputs,
    ask_sacct,
    is_job_id,
    leading_number,
    parse_sacct,
)
from srunbook.verify._form import METRICS
from srunbook.verify._logs import Log
from srunbook.verify._places import Places, TargetError, numbers_in

SACCT_SUMMARY = "sacct_summary.txt"
LARGEST_SUMMARY = 2**24
"""Bytes of sacct_summary.txt beyond which it is not read: these are rows of 100,000 steps."""


@dataclass(frozen=True)
class Artefacts:
    """What a job left behind.

    Args:
        job: Number of the job, or None where nothing names it.
        accounting: What Slurm's accounting says.
        logs: The logs: one for each rank, or that of the whole job.
        searched: Names of the logs that were looked for.
        results: Folder of results, or None for a job without one.
        sizes: Size in bytes of each file in it, by name.
        metrics: Its metrics.csv: the file, or its text; None without one.
        header: Columns in the first line of metrics.csv.
        parts: What each element of an array left behind; nothing for other jobs.
    """

    job: str | None
    accounting: Accounting
    logs: tuple[Log, ...] = ()
    searched: tuple[str, ...] = ()
    results: Path | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    metrics: Path | str | None = None
    header: tuple[str, ...] = ()
    parts: tuple[Artefacts, ...] = ()

    @property
    def unresolved(self) -> bool:
        """Tell whether only accounting could say which number Slurm gave the job, and does not."""
        return self.job is not None and not self.job.isdigit() and not self.accounting.rows

    def is_foreign(self, said: str | None) -> bool:
        """Tell whether a number that a rank says is that of another job. Where it says none, that is not known."""
        return not (said is None or self.job is None or self.unresolved or said in _numbers(self.job, self.accounting))


def _numbers(job: str, accounting: Accounting) -> list[str]:
    """Return the numbers by which a job is known: by its folders, its logs and the variables of its tasks."""
    numbers = [job, leading_number(job)] if "+" in job else [job]
    for part, rows in accounting.parts.items():
        numbers += [part, rows.rows[0].raw_id]
        numbers += [leading_number(part)] if "+" in part else []  # what tasks of all components see
    return [number for number in dict.fromkeys(numbers) if is_job_id(number)]


def collect(
    target: str,
    *,
    folder: Path | None = None,
    ask: Callable[[str], Accounting] = ask_sacct,
    outputs: Callable[[str], Mapping[str, OutputFiles]] = ask_outputs,
) -> Artefacts:
    """Collect what a job left behind.

    Args:
        target: Number of a job, of an element of an array such as `56_3`, or of a component such as `56+1`; or a
            folder of results.
        folder: Where the job was submitted; the current folder by default.
        ask: Returns the accounting of a job, given its number.
        outputs: Returns the files that a job writes to by number, as Slurm tells them; empty where it does not.

    Raises:
        TargetError: The target is neither a folder nor the number of a job, a job has several folders of results or a
            link to that of another one, or nothing in a folder is of a job.
        OSError: A file is there and cannot be read, or is a pipe or a device.
    """
    here = folder or Path()
    places = Places(here)
    if is_job_id(target):
        accounting = ask(target).of(target)
        told = _told(target, accounting, outputs)
        elements = [part for part in accounting.parts if "_" in part and leading_number(part) == target]
        if not elements:
            return _of_job(target, accounting, places, told)
        parts = tuple(_of_job(part, accounting.parts[part], places, told) for part in elements)
        return Artefacts(target, accounting, parts=parts)
    results = here / target
    if "\0" in target or not target or not results.is_dir():
        raise TargetError(
            f"{target!r} is neither a job id, which is a number such as 17, nor a folder of results, such as "
            "results/ddp_cpu_17"
        )
    return _of_folder(results if results.name not in ("", "..") else results.resolve(), places, ask, outputs)


Told = Callable[[], Mapping[str, Path]]


def _told(job: str, accounting: Accounting, outputs: Callable[[str], Mapping[str, OutputFiles]]) -> Told:
    """Return what asks Slurm for the logs of a job that it knows, once and not before that is needed."""
    known = accounting.source == "sacct" and bool(accounting.rows)
    return cache(lambda: {part: Path(files.output) for part, files in (outputs(job) if known else {}).items()})


def _of_job(job: str, accounting: Accounting, places: Places, told: Told) -> Artefacts:
    numbers = _numbers(job, accounting)
    results = places.results_of(job, numbers)
    logs, searched = places.logs_of(numbers, results, told)
    return _with_results(Artefacts(job, accounting, logs, searched, results))


def _of_folder(
    results: Path,
    places: Places,
    ask: Callable[[str], Accounting],
    outputs: Callable[[str], Mapping[str, OutputFiles]],
) -> Artefacts:
    logs, searched = places.logs_of([], results)
    job, accounting = _named(results.resolve(), logs, ask)
    numbers = _numbers(job, _or_summary(accounting, results, job)) if job else []
    if not logs:
        told = _told(job, accounting, outputs) if job else dict
        logs, searched = places.logs_of(numbers, results, told)
    artefacts = _with_results(Artefacts(job, accounting, logs, searched, results))
    if job is None and not logs and artefacts.metrics is None:
        raise TargetError(
            f"{str(results)!r} holds neither a log nor {METRICS}, and its name does not end with the number of a job: "
            "give a folder of results, such as results/ddp_cpu_17, or a job id"
        )
    return artefacts


def _named(results: Path, logs: Iterable[Log], ask: Callable[[str], Accounting]) -> tuple[str | None, Accounting]:
    """Find the job of a folder of results, by its name and by the last start line; return its accounting, too.

    The name `a_56_3` may end with the number of an element or with that of a job. Where sacct knows neither, its
    summary decides, or else the start lines: only an element has another number in them.
    """
    said = list(_jobs(logs))[-1:]
    candidates = numbers_in(results.name)
    agreed = [number for number in candidates if number in said]
    known: Accounting | None = None
    for job in agreed or candidates or said:
        known = ask(job).of(job)
        element = [part for part, rows in known.parts.items() if "_" in part and rows.rows[0].raw_id == job]
        if element:  # the last element has the number of its array
            return element[0], known.parts[element[0]]
        if known.rows:
            return job, known
    if known is None:
        return None, Accounting(problem="nothing here names the job")
    parts = _summary(results).parts
    told = [job for job in agreed or candidates or said if job in (*parts, *map(leading_number, parts))]
    element = candidates[:1] if said and not agreed else []
    return (told[:1] or element or agreed or candidates or said)[-1], known


def _jobs(logs: Iterable[Log]) -> Iterator[str]:
    """Yield the job ids that start lines name."""
    for line in (line for log in logs for line in log.rank_lines):
        if isinstance(line, RankStart) and line.job and is_job_id(line.job):
            yield line.job


def _with_results(artefacts: Artefacts) -> Artefacts:
    """Add what the folder of results holds, and its summary of accounting where that is needed."""
    results = artefacts.results
    if results is None:
        return artefacts
    sizes = {path.name: path.stat().st_size for path in sorted(results.iterdir()) if path.is_file()}
    path = results / METRICS
    header = next(read_lines(path), b"") if sizes.get(METRICS) else b""
    return replace(
        artefacts,
        accounting=_or_summary(artefacts.accounting, results, artefacts.job),
        sizes=sizes,
        metrics=path if sizes.get(METRICS) else None,
        header=tuple(header.decode("utf-8", errors="replace").strip().split(",")),
    )


def _or_summary(accounting: Accounting, results: Path, job: str | None) -> Accounting:
    """Take sacct_summary.txt where sacct could not be asked or does not know the job any more."""
    unreadable = accounting.problem and accounting.text  # it may have said that the job failed
    if accounting.rows or accounting.foreign or accounting.queued or unreadable:
        return accounting
    reason, found = accounting.problem or "sacct does not know the job", _summary(results)
    if found.problem:
        return replace(accounting, problem=f"{reason}, and {SACCT_SUMMARY} is not what sacct prints: {found.problem}")
    rows = found.rows
    found = replace(found, source=f"{SACCT_SUMMARY} ({reason})")
    found = found.of(job) if job else found
    if found.foreign or (rows and not job):
        return replace(accounting, problem=f"{reason}, and {SACCT_SUMMARY} is of job {rows[0].job_id}")
    offsets = sorted(int(part.partition("+")[2]) for part in found.parts if "+" in part)
    if offsets != list(range(len(offsets))):
        return replace(accounting, problem=f"{reason}, and {SACCT_SUMMARY} lacks components of the job")
    if rows and not found.final:
        return replace(accounting, problem=f"{reason}, and {SACCT_SUMMARY} was written before the end of the job")
    return found if rows else accounting


def _summary(results: Path) -> Accounting:
    """Read sacct_summary.txt; return no rows without one, and the problem where it cannot be read."""
    path = results / SACCT_SUMMARY
    if not path.is_file():
        return Accounting()
    try:
        text = read_whole(path, LARGEST_SUMMARY).decode("utf-8", errors="replace")
        return Accounting(tuple(parse_sacct(text)), text=text)
    except (OSError, SlurmParseError) as error:
        return Accounting(problem=str(error))


def write_accounting(artefacts: Artefacts) -> bool:
    """Write sacct_summary.txt whole into the folder of results, once sacct said that the job has ended.

    Returns:
        Whether the file changed.
    """
    accounting = artefacts.accounting
    if artefacts.results is None or accounting.source != "sacct" or not accounting.final:
        return False
    return write_whole(artefacts.results / SACCT_SUMMARY, accounting.text)
