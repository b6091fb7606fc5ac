"""Explain logs and jobs: read what was named, on all cores, and diagnose it."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO

from srunbook._files import BLOCK, read_blocks
from srunbook.explain._diagnosis import diagnose
from srunbook.explain._entries import load_entries, load_ordinary
from srunbook.explain._flight import read_dumps
from srunbook.explain._hang import find_hangs
from srunbook.explain._job import JobLogs, find_job
from srunbook.explain._redact import Redactor
from srunbook.explain._report import Report
from srunbook.explain._scan import Scanned, Scanner
from srunbook.slurm import is_job_id

WORTH_SHARING = 2**23
"""Bytes of logs beyond which several processes read them sooner than one."""

EMPTY = "the file is empty"


@dataclass(frozen=True)
class Explained:
    """A report, and what could not be read for it.

    Args:
        report: What the logs say.
        problems: A sentence for each log or job that could not be read as a whole.
    """

    report: Report
    problems: tuple[str, ...] = ()


@cache
def _scanner() -> Scanner:
    return Scanner(load_entries(), load_ordinary())


def explain(
    targets: Sequence[str],
    *,
    redact: bool = False,
    stdin: BinaryIO | None = None,
    job: Callable[[str], JobLogs] = find_job,
) -> Explained:
    """Find out why a job failed.

    Args:
        targets: Paths of logs and of dumps of the flight recorder, numbers of jobs, and `-` for the standard input. A
            number that is a file is a log.
        redact: Whether to mask users, homes, hosts, addresses, tokens and keys.
        stdin: What `-` reads; by default the standard input.
        job: Finds the logs of a job.
    """
    problems: list[str] = []
    jobs = [job(target) for target in targets if _is_job(target)]
    paths = list(dict.fromkeys([*(Path(target) for target in targets if not _is_job(target) and target != "-")]))
    paths += [path for found in jobs for path in found.paths if path not in paths]
    recorded = read_dumps(paths)
    problems += [f"{path}: {problem}" for path, problem in recorded.problems]
    paths = [path for path in paths if path not in recorded.paths]
    named = [(str(path), scanned) for path, scanned in zip(paths, _scan_all(paths), strict=True)]
    if "-" in targets:
        stream = stdin or sys.stdin.buffer
        named.append(("-", _scanner().scan("-", iter(lambda: stream.read(BLOCK), b""))))
    for found in jobs:
        problems += found.problems
        text = "\n".join(found.lines).encode()
        named += [("Slurm", _scanner().scan("Slurm", [text]))] if text else []
    silent = _empty_beside_others(named, jobs)
    for name, scanned in named:
        problems += [f"{name}: {one}" for one in scanned.problems if one != EMPTY or name not in silent]
    completed = bool(jobs) and all(found.completed for found in jobs)
    diagnosis = diagnose([scanned for _, scanned in named], load_entries(), completed=completed)
    report = Report(
        diagnosis,
        load_entries(),
        [(name, scanned.size) for name, scanned in named if scanned.size and name != "Slurm"],
        job=jobs[0].job if jobs else None,
        state=jobs[0].state if jobs else "",
        mask=_redactor(named, jobs).mask if redact else str,
        hangs=find_hangs(recorded.dumps),
        dumps=[dump.name for dump in recorded.dumps.values()],
    )
    return Explained(report, tuple(problems))


def _empty_beside_others(named: Iterable[tuple[str, Scanned]], jobs: Iterable[JobLogs]) -> set[str]:
    """Return the empty logs of jobs that have other logs: nothing went to their standard error."""
    sizes = {name: scanned.size for name, scanned in named}
    logs = [{str(path) for path in found.paths} for found in jobs]
    return {name for own in logs if any(sizes.get(one) for one in own) for name in own if not sizes.get(name)}


def _is_job(target: str) -> bool:
    return is_job_id(target) and not Path(target).exists()


def _redactor(named: Iterable[tuple[str, Scanned]], jobs: Iterable[JobLogs]) -> Redactor:
    """Return what masks the names in all findings, and those that Slurm and the rank lines tell."""
    hosts = [host for found in jobs for host in found.hosts]
    users = [os.environ[name] for name in ("USER", "LOGNAME", "SUDO_USER") if os.environ.get(name)]
    redactor = Redactor(users, hosts)
    for name, scanned in named:
        redactor.learn(str(Path(name).absolute()))
        for host in scanned.hosts.values():
            redactor.learn(f"host={host}")
        for finding in scanned.findings:
            redactor.learn(finding.text)
    return redactor


def _scan_all(paths: Sequence[Path]) -> Iterator[Scanned]:
    """Read logs, with all cores where there is much to read."""
    cores = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, len(paths))
    if cores < 2 or sum(map(_size, paths)) < WORTH_SHARING:
        yield from map(_scan_file, paths)
        return
    context = multiprocessing.get_context("spawn")  # a caller may have threads
    with ProcessPoolExecutor(cores, mp_context=context) as pool:
        yield from pool.map(_scan_file, paths)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except (OSError, ValueError):
        return 0


def _scan_file(path: Path) -> Scanned:
    """Read one log; where it cannot be read, say why."""
    try:
        scanned = _scanner().scan(str(path), read_blocks(path))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        more = f": give the logs in it, as in {path}/*.out" if path.is_dir() else ""
        return Scanned(problems=[f"{reason}{more}"])
    if not scanned.size:
        scanned.problems.append(EMPTY)
    return scanned
