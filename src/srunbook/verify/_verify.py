"""Verify a job: find what it left, and make all checks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from srunbook._files import read_whole
from srunbook.slurm import (
    Accounting,
    OutputFiles,
    SlurmParseError,
    ask_outputs,
    ask_sacct,
    ask_step_outputs,
    is_job_id,
    leading_number,
    parse_sacct,
)
from srunbook.verify._checks import (
    NO_LINES,
    PRINT,
    check_backend,
    check_ends,
    check_hosts,
    check_job,
    check_parameters,
    check_steps,
    check_world,
    steps_of,
)
from srunbook.verify._find import Folder, walk
from srunbook.verify._logs import Logs, World
from srunbook.verify._metrics import METRICS, check_metrics
from srunbook.verify._report import SACCT_SUMMARY, Check, Report, Verdict, failed, not_proven, passed

LARGEST_SUMMARY = 2**24


class TargetError(ValueError):
    """The target is neither the number of a job nor a folder; the message says so."""


def verify(
    target: str,
    *,
    folder: Path | None = None,
    logs: Sequence[Path] = (),
    backend: str | None = None,
    require: Sequence[str] = (),
    ask: Callable[[str], Accounting] = ask_sacct,
    outputs: Callable[[str], Mapping[str, OutputFiles]] = ask_outputs,
    step_outputs: Callable[[str], Sequence[str]] = ask_step_outputs,
) -> Report:
    """Verify a finished job.

    Args:
        target: The number of a job, of an element of an array such as `56_3`, or of a component such as `56+1`; or a
            folder of results.
        folder: Where the job was submitted; the current folder by default.
        logs: Its logs; by default they are looked for.
        backend: The backend that all ranks should have used; by default the one they agree on.
        require: Names of files that the folder of results has to hold.
        ask: Returns the accounting of a job.
        outputs: Returns the files that a job writes to, by number.
        step_outputs: Returns the files that the steps of a job write to.

    Raises:
        TargetError: The target is neither.
    """
    here = folder or Path()
    one = _One(Folder(here, logs, outputs, step_outputs), backend, require)
    if is_job_id(target):
        accounting = ask(target).of(target)
        elements = [part for part in accounting.parts if "_" in part and leading_number(part) == target]
        if not elements:
            return one.verify(target, accounting)
        reports = [one.verify(part, accounting.parts[part]) for part in elements]
        return Report(target, [report.as_check() for report in reports], parts=reports)
    results = here / target
    if "\0" in target or not target or not results.is_dir():
        raise TargetError(
            f"{target!r} is neither a job id, which is a number such as 17, nor a folder of results, such as "
            "results/ddp_cpu_17"
        )
    named = re.search(r"([1-9][0-9]{0,9}_)?((?:0|[1-9][0-9]{0,9}))$", results.resolve().name)
    names = [f"{named[1]}{named[2]}"] if named and named[1] else []
    names += [named[2]] if named and named[2] != "0" else []
    for name in names:  # `run_56_3` is of an element, or of job 3
        accounting = ask(name).of(name)
        if accounting.rows or name == names[-1]:
            return one.verify(name, accounting, [results])
    return one.verify(None, Accounting(problem="the name of the folder does not end with a job id"), [results])


class _One:
    """Verifies one job, or one element of an array."""

    def __init__(self, folder: Folder, backend: str | None, require: Sequence[str]) -> None:
        self.folder = folder
        self.backend = backend
        self.require = require

    def verify(self, job: str | None, accounting: Accounting, results: Sequence[Path] = ()) -> Report:
        """Make all checks."""
        numbers = _numbers(job, accounting) if job else []
        results = results or self.folder.results(numbers)
        accounting = _or_summary(job, accounting, results)
        name = job or str(results[0])
        parts = {part: accounting.parts[part] for part in accounting.chosen(name)} or {name: accounting}
        if accounting.queued or any(not rows.attempts[-1][0].ended for rows in parts.values() if rows.rows):
            waiting = [_named(check_job(part, rows, Logs()), part, parts) for part, rows in parts.items()]
            return Report(job, waiting, results, accounting)
        logs = self.folder.logs(numbers, results)
        checks = []
        for part, rows in parts.items():
            checks += [_named(check_job(part, rows, logs), part, parts)]
            checks += [_named(check_steps(part, rows, logs), part, parts)] if rows.rows else []
        worlds = _last(logs.worlds(numbers) if job else logs.worlds(_said(logs)), accounting)
        checks += self._of_ranks(name, logs, worlds, accounting, numbers)
        checks += self._of_files(results, worlds)
        return Report(job, checks, results, accounting)

    def _of_ranks(
        self, job: str, logs: Logs, worlds: Sequence[World], accounting: Accounting, numbers: Sequence[str]
    ) -> list[Check]:
        read = f"{logs.read[0]}{f' and {len(logs.read) - 1} more' if logs.read[1:] else ''}" if logs.read else ""
        if logs.problem:
            return [not_proven("rank lines", *logs.problem)]
        if not logs.read:
            nearest = self.folder.nearest(numbers)
            found = f"; there are {', '.join(nearest)}" if nearest else ""
            return [not_proven("rank lines", f"found no log of job {job}{found}", "name it: --log FILE")]
        if not worlds:
            if logs.started:
                others = ", ".join(sorted(_said(logs))[:8])
                hint = f"srunbook verify {others}, or name the log of job {job}: --log FILE"
                return [not_proven("rank lines", f"{read}: only lines of job {others}", hint)]
            return [not_proven("rank lines", f"{NO_LINES} in {read}", PRINT)]
        steps = steps_of(accounting)
        ranks = sum(len(world.runs) for world in worlds)
        world = check_world(worlds, steps, accounting, logs)
        hosts = check_hosts(worlds, steps, accounting) if accounting.rows and world.verdict is Verdict.PASSED else None
        checks = [
            passed("rank lines", f"{ranks} rank{'' if ranks == 1 else 's'} in {read}"),
            world,
            hosts,
            check_backend(worlds, self.backend),
            check_ends(worlds, logs, job),
            check_parameters(worlds),
        ]
        return [check for check in checks if check is not None]

    def _of_files(self, results: Sequence[Path], worlds: Sequence[World]) -> list[Check]:
        checks = []
        if self.require:
            checks.append(_check_files(results, self.require))
        said = {run.start.epochs for world in worlds for run in world.runs.values()}
        asked = said.pop() if len(said) == 1 else None
        tables = [path for folder in results for path in walk(folder, re.compile(re.escape(METRICS)))]
        found = [check_metrics(path, asked) for path in tables]
        wrong = [check for check in found if check.hint]
        if found:
            more = f" and {len(found) - 1} more" if found[1:] else ""
            checks.append(wrong[0] if wrong else replace(found[0], evidence=found[0].evidence + more))
        return checks


def _check_files(results: Sequence[Path], names: Sequence[str]) -> Check:
    if not results:
        return failed("files", "there is no folder of results", "did the job write one? Look into its log")
    paths = [results[0] / name for name in names]
    wrong = [f"{path.name} is {'empty' if path.is_file() else 'missing'}" for path in paths if not _has_bytes(path)]
    if wrong:
        hint = f"did rank 0 come to its end, and can it write there? ls -ld {results[0]}"
        return failed("files", f"{', '.join(wrong)} in {results[0]}", hint)
    return passed("files", ", ".join(f"{path.name} {path.stat().st_size} bytes" for path in paths))


def _has_bytes(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size > 0
    except OSError:
        return False


def _last(worlds: Sequence[World], accounting: Accounting) -> list[World]:
    """Leave out worlds of earlier attempts of a job that was requeued: no step of the last one is theirs."""
    if max((len(part.attempts) for part in accounting.parts.values()), default=1) == 1:
        return list(worlds)
    steps = steps_of(accounting)
    kept: list[World] = []
    taken: Counter[int] = Counter()
    for world in reversed(worlds):
        fitting = sum(bool(step.tasks) and world.size % step.tasks == 0 for step in steps)
        if world.last or taken[world.size] < fitting:
            kept.append(world)
            taken[world.size] += 1
    return kept[::-1]


def _numbers(job: str, accounting: Accounting) -> list[str]:
    """Return the numbers by which a job is known: to Slurm, to its tasks, and in the names of its files."""
    rows = accounting.rows
    numbers = [job, *(row.job_id for row in rows if not row.step), *(row.raw_id for row in rows if not row.step)]
    numbers += [leading_number(number) for number in numbers if "+" in number]
    return list(dict.fromkeys(number for number in numbers if is_job_id(number)))


def _said(logs: Logs) -> set[str]:
    """Return the numbers of jobs that start lines name."""
    runs = (run for ranks in logs.runs.values() for runs in ranks.values() for run in runs)
    return {run.start.job for run in runs if run.start.job}


def _named(check: Check, part: str, parts: Mapping[str, Accounting]) -> Check:
    return replace(check, name=f"{part} {check.name}") if len(parts) > 1 or "+" in part else check


def _or_summary(job: str | None, accounting: Accounting, results: Sequence[Path]) -> Accounting:
    """Take sacct_summary.txt of the folder of results if sacct cannot be asked or has forgotten the job."""
    if accounting.rows or accounting.queued or accounting.text.count("\n") > 1 or job is None:
        return accounting
    for folder in results:
        try:
            text = read_whole(folder / SACCT_SUMMARY, LARGEST_SUMMARY).decode("utf-8", errors="replace")
            found = Accounting(tuple(parse_sacct(text)), SACCT_SUMMARY, text=text).of(job)
        except (OSError, SlurmParseError):
            continue
        if found.final:
            return found
    return accounting
