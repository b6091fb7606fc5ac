"""Check whether a finished job did its work, from its accounting, the rank lines in its logs and its metrics.csv.

`verify` checks a job, an element of an array, or a folder of results. A check without any evidence is "not proven".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from srunbook.slurm import Accounting, ask_accounting, is_job_id, leading_number
from srunbook.verify.checks import check_job, check_ranks, check_steps, latest
from srunbook.verify.logs import Folder, Logs
from srunbook.verify.report import Check, Report, Verdict
from srunbook.verify.results import check_files, check_metrics

__all__ = ["Check", "Report", "TargetError", "Verdict", "verify"]


class TargetError(ValueError):
    """The target is neither the number of a job nor a folder."""


def verify(
    target: str,
    *,
    folder: Path | None = None,
    logs: Sequence[Path] = (),
    backend: str | None = None,
    require: Sequence[str] = (),
    ask: Callable[[str], Accounting] = ask_accounting,
) -> Report:
    """Verify a finished job.

    Args:
        target: The number of a job, of an element of an array such as `56_3`, or of a component such as `56+1`; or a
            folder of results.
        folder: Where the job was submitted; the current folder by default.
        logs: Its logs; by default, `verify` searches for them.
        backend: The backend that all ranks should have used; by default the one they agree on.
        require: Names of files that the folder of results must contain.
        ask: A function that returns the accounting of a job.

    Raises:
        TargetError: The target is neither the number of a job nor a folder.
    """
    here = folder or Path()
    judge = partial(_verify, folder=Folder(here), named=logs, backend=backend, require=require)
    if is_job_id(target):
        accounting = ask(target).of(target)
        elements = [part for part in accounting.parts if "_" in part and leading_number(part) == target]
        if not elements:
            return judge(target, accounting)
        reports = [judge(part, accounting.parts[part]) for part in elements]
        return Report(target, [report.as_check() for report in reports], parts=reports)
    results = here / target
    if not target or not results.is_dir():
        raise TargetError(
            f"{target!r} is neither a job id, which is a number such as 17, nor a folder of results, such as "
            "results/ddp_cpu_17"
        )
    named = re.search(r"((?:[1-9][0-9]{0,9}_)?(0|[1-9][0-9]{0,9}))$", results.resolve().name)
    names = [name for name in dict.fromkeys(named.groups()) if is_job_id(name)] if named else []
    for name in names:  # `run_56_3` is of an element, or of job 3
        accounting = ask(name).of(name)
        if accounting.rows or name == names[-1]:
            return judge(name, accounting, [results])
    return judge(None, Accounting(problem="the name of the folder does not end with a job id"), [results])


def _verify(
    job: str | None,
    accounting: Accounting,
    results: Sequence[Path] = (),
    *,
    folder: Folder,
    named: Sequence[Path],
    backend: str | None,
    require: Sequence[str],
) -> Report:
    """Verify one job, or one element of an array."""
    numbers = _numbers(job, accounting) if job else []
    results = results or folder.results(numbers)
    name = job or str(results[0])
    parts = accounting.parts or {name: accounting}
    ended = not accounting.queued and all(part.attempts[-1][0].ended for part in parts.values() if part.rows)
    ran = ended and (not accounting.rows or any(row.node_list for row in accounting.rows))
    logs = folder.logs(numbers, results, named) if ran else Logs()
    checks = []
    for part, rows in parts.items():
        of_part = [check_job(part, rows), *([check_steps(part, rows, logs)] if ran and rows.rows else [])]
        several = len(parts) > 1 or "+" in part
        checks += [replace(check, name=f"{part} {check.name}") if several else check for check in of_part]
    if ran:
        worlds = latest(logs.worlds(numbers or logs.jobs), accounting)
        checks += check_ranks(name, worlds, accounting, logs, backend)
        checks += [check_files(results, require)] if require else []
        epochs = {run.start.epochs for world in worlds for run in world.runs.values()}
        metrics = check_metrics(results, epochs.pop() if len(epochs) == 1 else None)
        checks += [metrics] if metrics else []
    return Report(job, checks, results, accounting)


def _numbers(job: str, accounting: Accounting) -> list[str]:
    """Return the numbers by which a job is known: to Slurm, to its tasks, and in the names of its files."""
    rows = [row for row in accounting.rows if not row.step]
    numbers = [job, *(row.job_id for row in rows), *(row.raw_id for row in rows)]
    numbers += [leading_number(number) for number in numbers if "+" in number]
    return [number for number in dict.fromkeys(numbers) if is_job_id(number)]
