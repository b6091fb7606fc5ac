"""Make all checks of a job, in the order in which one explains the next."""

from __future__ import annotations

from collections.abc import Sequence

from srunbook.verify._artefacts import Artefacts
from srunbook.verify._causes import Cause
from srunbook.verify._form import METRICS, ResultsForm
from srunbook.verify._job import check_job, check_steps
from srunbook.verify._logs import RankRun, rank_runs
from srunbook.verify._ranks import (
    check_backend,
    check_ends,
    check_hosts,
    check_parameters,
    check_rank_lines,
    check_world,
)
from srunbook.verify._report import Check, Report
from srunbook.verify._results import (
    asked_epochs,
    check_epochs,
    check_files,
    check_finite,
    check_losses,
    final_values,
    read_metrics,
)

NOT_OVER = (Cause.PENDING, Cause.RUNNING, Cause.REQUEUED)


def judge(artefacts: Artefacts, *, backend: str | None = None, form: ResultsForm | None = None) -> Report:
    """Check what a job left behind.

    This reads, asks and writes nothing. A job that has not ended gets no check beyond that.

    Args:
        artefacts: What `collect` found.
        backend: The backend that all ranks should have used; by default the one they agree on.
        form: What the folder of results should hold; by default what its metrics.csv says of itself.

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
        check_rank_lines(artefacts, runs),
        check_world(artefacts, runs),
        check_hosts(artefacts, runs),
        check_backend(runs, backend),
        check_ends(runs),
        check_parameters(runs),
    ]
    if results is None:
        return Report(artefacts.job, results, tuple(checks))
    more, final = _results(artefacts, runs, form or ResultsForm())
    return Report(artefacts.job, results, (*checks, *more), final)


def _results(artefacts: Artefacts, runs: Sequence[RankRun], form: ResultsForm) -> tuple[list[Check], dict[str, float]]:
    """Check the folder of results; return the metrics of the last epoch, too."""
    files = check_files(artefacts, form)
    if METRICS not in (*form.required, *artefacts.sizes):
        return [files], {}
    log = next((log for log in artefacts.logs if log.rank in (None, 0)), None)
    readable, metrics = read_metrics(artefacts, form)
    checks = [
        files,
        readable,
        check_epochs(metrics, asked_epochs(runs, log)),
        check_finite(metrics, form),
        check_losses(metrics, log),
    ]
    return checks, final_values(metrics, form)
