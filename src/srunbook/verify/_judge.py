"""All checks of a job, in the order in which one explains the next."""

from __future__ import annotations

import math
from collections.abc import Sequence

from srunbook.verify._artefacts import Artefacts
from srunbook.verify._causes import Cause
from srunbook.verify._job import check_job, check_steps
from srunbook.verify._logs import RankRun, rank_runs
from srunbook.verify._ranks import (
    check_backend,
    check_ends,
    check_hosts,
    check_parameters,
    check_records,
    check_world,
)
from srunbook.verify._report import Check, Report
from srunbook.verify._results import (
    FINAL,
    asked_epochs,
    check_epochs,
    check_files,
    check_finite,
    check_losses,
    read_epochs,
)

NOT_OVER = (Cause.PENDING, Cause.RUNNING, Cause.REQUEUED)


def judge(artefacts: Artefacts, *, backend: str | None = None) -> Report:
    """Checks what a job left behind.

    Nothing is read, asked or written here. A job that has not ended gets no check beyond that.

    Args:
        artefacts: What `collect` found.
        backend: The backend that all ranks should have used; by default the one they agree on.

    Returns:
        The checks. The cause of the first that failed is that of the report.
    """
    results = None if artefacts.results is None else str(artefacts.results)
    job = check_job(artefacts)
    if job.cause in NOT_OVER or (job.cause is Cause.UNKNOWN_JOB and results is None and not artefacts.logs):
        return Report(artefacts.job, results, (job,), ended=False)
    runs = rank_runs(artefacts.logs, max(1, len(artefacts.accounting.attempts)))
    checks = [
        job,
        check_steps(artefacts, runs),
        check_records(artefacts, runs),
        check_world(artefacts, runs),
        check_hosts(artefacts, runs),
        check_backend(runs, backend),
        check_ends(runs),
        check_parameters(runs),
    ]
    if results is None:
        return Report(artefacts.job, results, tuple(checks))
    more, final = _results(artefacts, runs)
    return Report(artefacts.job, results, (*checks, *more), final)


def _results(artefacts: Artefacts, runs: Sequence[RankRun]) -> tuple[list[Check], dict[str, float]]:
    """Checks of the folder of results, and the metrics of the last epoch."""
    log = next((log for log in artefacts.logs if log.rank in (None, 0)), None)
    form, lines = read_epochs(artefacts)
    epochs = lines if form.cause is None and artefacts.metrics is not None else None
    checks = [
        check_files(artefacts),
        form,
        check_epochs(epochs, asked_epochs(runs, log)),
        check_finite(epochs),
        check_losses(epochs, log),
    ]
    last = epochs[-1].values if epochs else {}
    return checks, {name: last[name] for name in FINAL if math.isfinite(last.get(name, math.nan))}
