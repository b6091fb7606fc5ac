"""Collect what a job left behind: accounting, logs, files of results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from srunbook._files import write_whole
from srunbook.ranklog import RankStart
from srunbook.slurm import SlurmParseError, parse_sacct
from srunbook.verify._form import METRICS
from srunbook.verify._logs import Log, read_log
from srunbook.verify._sacct import Accounting, ask_sacct

SACCT_SUMMARY = "sacct_summary.txt"
JOB_ID = re.compile(r"[1-9][0-9]{0,9}")
LARGEST_METRICS = 2**26
"""Bytes of metrics.csv beyond which it cannot hold a line for each epoch."""


class TargetError(ValueError):
    """What was given is neither a job id nor a folder of results."""


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
        metrics: Text of its metrics.csv, or None.
    """

    job: str | None
    accounting: Accounting
    logs: tuple[Log, ...] = ()
    searched: tuple[str, ...] = ()
    results: Path | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    metrics: str | None = None


def collect(target: str, *, folder: Path | None = None, ask: Callable[[str], Accounting] = ask_sacct) -> Artefacts:
    """Collect what a job left behind.

    Args:
        target: Number of a job, or a folder of results.
        folder: Where the job was submitted; the current folder by default.
        ask: Returns the accounting of a job, given its number.

    Raises:
        TargetError: The target is neither a folder nor the number of a job, or a job has several folders of results.
        OSError: A file is there and cannot be read.
    """
    here = folder or Path()
    job: str | None
    if JOB_ID.fullmatch(target):
        job, results = target, _results_of(target, here)
    else:
        results = here / target
        if "\0" in target or not target or not results.is_dir():
            raise TargetError(
                f"{target!r} is neither a job id, which is a number such as 17, nor a folder of results, such as "
                "results/ddp_cpu_17"
            )
        job = next(iter(re.findall(r"_([1-9][0-9]{0,9})$", results.resolve().name)), None)
    logs, searched = _logs(job, results, here)
    job = job or next(_jobs(logs), None)
    accounting = ask(job) if job else Accounting(problem="nothing here names the job")
    if results is None:
        return Artefacts(job, accounting, logs, searched)
    sizes = {path.name: path.stat().st_size for path in sorted(results.iterdir()) if path.is_file()}
    readable = 0 < sizes.get(METRICS, 0) <= LARGEST_METRICS
    text = (results / METRICS).read_text(encoding="utf-8", errors="replace") if readable else None
    return Artefacts(job, _or_summary(accounting, results, job), logs, searched, results, sizes, text)


def _jobs(logs: Iterable[Log]) -> Iterator[str]:
    """Yield the job ids that start lines name."""
    for line in (line for log in logs for line in log.rank_lines):
        if isinstance(line, RankStart) and line.job and JOB_ID.fullmatch(line.job):
            yield line.job


def _results_of(job: str, here: Path) -> Path | None:
    """Find the folder of results of a job, or None."""
    found = sorted(path for path in (here / "results").glob(f"*_{job}") if path.is_dir())
    if len(found) > 1:
        names = " and ".join(map(str, found))
        raise TargetError(f"job {job} has several folders of results, {names}: give one of them in place of the job id")
    return found[0] if found else None


def _logs(job: str | None, results: Path | None, here: Path) -> tuple[tuple[Log, ...], tuple[str, ...]]:
    """Read the logs of the ranks, or else that of the whole job; return the names that were looked for, too."""
    if results:
        ranks = ((path, re.fullmatch(r"rank_(\d{1,9})\.log", path.name)) for path in results.glob("rank_*.log"))
        found = sorted((int(match[1]), path) for path, match in ranks if match)
        if found:
            return tuple(read_log(path, str(path), rank) for rank, path in found), ()
    places = [results.with_name(f"{results.name}.out")] if results else []
    if job:
        places += [*sorted(here.glob(f"results/*_{job}.out"))]
        places += [here / f"slurm-{job}.out", here / "logs" / f"slurm-{job}.out"]
        places += [*sorted(here.glob(f"*_{job}.out")), *sorted(here.glob(f"logs/*_{job}.out"))]
    places = list(dict.fromkeys(places))
    log = next((path for path in places if path.is_file()), None)
    expected = [results / "rank_0.log"] if results else []
    return (read_log(log, str(log), None),) if log else (), tuple(map(str, [*expected, *places]))


def _or_summary(accounting: Accounting, results: Path, job: str | None) -> Accounting:
    """Take sacct_summary.txt where sacct could not be asked or does not know the job any more."""
    path = results / SACCT_SUMMARY
    if accounting.rows or accounting.queued or not path.is_file():
        return accounting
    reason = accounting.problem or "sacct does not know the job"
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        rows = tuple(parse_sacct(text))
    except SlurmParseError as error:
        return replace(accounting, problem=f"{reason}, and {SACCT_SUMMARY} is not what sacct prints: {error}")
    if any(row.job_id != job for row in rows):
        return replace(accounting, problem=f"{reason}, and {SACCT_SUMMARY} is of job {rows[0].job_id}")
    found = Accounting(rows, source=f"{SACCT_SUMMARY} ({reason})", text=text)
    if rows and not found.final:
        return replace(accounting, problem=f"{reason}, and {SACCT_SUMMARY} was written before the end of the job")
    return found if rows else accounting


def write_accounting(artefacts: Artefacts) -> bool:
    """Write sacct_summary.txt whole into the folder of results, once sacct said that the job has ended.

    Returns:
        Whether the file changed.
    """
    accounting = artefacts.accounting
    if artefacts.results is None or accounting.source != "sacct" or not accounting.final:
        return False
    return write_whole(artefacts.results / SACCT_SUMMARY, accounting.text)
