"""Let `srunbook verify` judge a job in this process: with a Slurm that says what the job says, and never for long."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from click.testing import CliRunner
from support.finished_jobs import Job
from support.patience import PATIENCE

from srunbook.cli.verify import command
from srunbook.slurm import sacct_command

VERDICTS = {0: "passed", 1: "broken off", 2: "refused", 3: "not proven"}
"""Verdicts by exit status; any other status is `failed`."""

DEFECTS = ("traceback", "hung", "unprintable")
"""What is no verdict: an exception, a wait without end, and a report that could move a terminal's cursor."""


class Hung(BaseException):
    """The verification did not come to an end."""


@dataclass(frozen=True)
class Verdict:
    """What came of a verification.

    Args:
        name: The verdict, or the defect.
        text: What was printed.
    """

    name: str
    text: str


def columns() -> list[str]:
    """Return the columns that the command asks sacct for."""
    return sacct_command("1")[-1].partition("=")[2].split(",")


def verdict(job: Job, folder: Path, *, patience: float = PATIENCE) -> Verdict:
    """Write a job into a new folder, and let the command judge it there."""
    here = job.write(folder, columns())
    with chdir(here), _slurm(job), _clock(), patch.object(os, "fsync"):
        try:
            with _limit(patience):
                result = CliRunner().invoke(command, [*job.options, "--", job.target], color=True)
        except Hung:
            return Verdict("hung", "".join(traceback.format_exc()))
    if result.exception and not isinstance(result.exception, SystemExit):
        return Verdict("traceback", "".join(traceback.format_exception(result.exception)))
    if re.search(r"[\x00-\x09\x0b-\x1f\x7f]", result.output):
        return Verdict("unprintable", repr(result.output))
    return Verdict(VERDICTS.get(result.exit_code, "failed"), result.output)


@contextmanager
def _slurm(job: Job) -> Iterator[None]:
    """Answer in place of sacct and squeue; have no scontrol."""
    real = subprocess.run

    def run(argv: Sequence[str], *args: Any, **options: Any) -> subprocess.CompletedProcess[Any]:
        if argv[0] not in ("sacct", "scontrol", "squeue"):
            return real(argv, *args, **options)
        if job.source == "missing" or argv[0] == "scontrol":
            raise FileNotFoundError(argv[0])
        words = dict(re.findall(r"--(jobs|format)=(\S+)", "\n".join(argv)))
        said, complaint = "", ""
        if argv[0] == "sacct":
            said, complaint = _sacct(job, words, header="--noheader" not in argv)
        return subprocess.CompletedProcess(argv, job.status or bool(complaint), said, complaint or "sacct: error: no")

    with patch.object(subprocess, "run", run):
        yield


def _sacct(job: Job, words: dict[str, str], *, header: bool) -> tuple[str, str]:
    """Return what sacct prints on stdout and on stderr."""
    names = words["format"].split(",")
    unknown = [name for name in names if name not in job.main]
    if unknown:
        return "", f'sacct: error: Invalid field requested: "{unknown[0]}" (a column that finished_jobs.row lacks)'
    text = "|".join(names) + "\n" if job.source == "forgot" else job.sacct(words["jobs"], names)
    return text if header else text.partition("\n")[2], ""


@contextmanager
def _clock() -> Iterator[None]:
    """Let waiting take no time."""
    slept, now = [0.0], time.monotonic

    def sleep(seconds: float) -> None:
        slept[0] += seconds

    with patch.object(time, "sleep", sleep), patch.object(time, "monotonic", lambda: now() + slept[0]):
        yield


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Raise Hung in the main thread after so many seconds; pytest-timeout has the alarm clock for itself."""

    def end(*_: object) -> None:
        raise Hung

    before = signal.signal(signal.SIGUSR1, end)
    timer = threading.Timer(seconds, _interrupt(threading.get_ident()))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        signal.signal(signal.SIGUSR1, before)


def _interrupt(thread: int) -> Callable[[], None]:
    return lambda: signal.pthread_kill(thread, signal.SIGUSR1)
