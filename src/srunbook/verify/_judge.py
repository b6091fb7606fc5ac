"""Make all checks of a job, in the order in which one explains the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from srunbook.verify._artefacts import Artefacts
from srunbook.verify._causes import NOT_OVER, Cause
from srunbook.verify._form import METRICS, ResultsForm
from srunbook.verify._hosts import check_hosts
from srunbook.verify._job import check_job, check_steps
from srunbook.verify._logs import Log
from srunbook.verify._matching import World, find_world
from srunbook.verify._ranks import check_backend, check_ends, check_parameters, check_rank_lines
from srunbook.verify._report import Check, Report, as_check
from srunbook.verify._results import (
    asked_epochs,
    check_epochs,
    check_files,
    check_finite,
    check_losses,
    final_values,
    read_metrics,
)
from srunbook.verify._world import check_world

Form = ResultsForm | Callable[[Artefacts], ResultsForm] | None


def judge(artefacts: Artefacts, *, backend: str | None = None, form: Form = None) -> Report:
    """Check what a job left behind.

    This asks and writes nothing; of files it reads metrics.csv, and whether others have an end. A job that has not
    ended gets no check beyond that. Of an array, each element is judged, and the worst decides; of a heterogeneous job,
    the accounting of each component.

    Args:
        artefacts: What `collect` found.
        backend: The backend that all ranks should have used; by default the one they agree on.
        form: What the folder of results should hold, or a function that says so for each element of an array; by
            default what its metrics.csv says of itself.

    Returns:
        The checks. The cause of the first that failed is that of the report.

    Raises:
        OSError: A file cannot be read.
    """
    if artefacts.parts:
        reports = tuple(judge(part, backend=backend, form=form) for part in artefacts.parts)
        checks = tuple(map(as_check, reports))
        return Report(artefacts.job, None, checks, ended=all(report.ended for report in reports), parts=reports)
    results = None if artefacts.results is None else str(artefacts.results)
    world = find_world(artefacts)
    jobs, ended = _jobs(artefacts, world)
    if not ended or (jobs[0].cause is Cause.UNKNOWN_JOB and results is None and not artefacts.logs):
        return Report(artefacts.job, results, tuple(jobs if not ended else jobs[:1]), ended=False)
    checks_of_ranks = [
        check_rank_lines(artefacts, world),
        check_world(artefacts, world),
        check_hosts(artefacts, world),
        check_backend(world.runs, backend),
        check_ends(world, _log_of_rank_0(artefacts)),
        check_parameters(world),
    ]
    if results is None:
        return Report(artefacts.job, results, (*jobs, *checks_of_ranks))
    wanted = form(artefacts) if callable(form) else form
    more, final = _results(artefacts, world, wanted or ResultsForm())
    return Report(artefacts.job, results, (*jobs, *checks_of_ranks, *more), final)


def _jobs(artefacts: Artefacts, world: World) -> tuple[list[Check], bool]:
    """Check the accounting of the job, or of each component that was asked for; tell whether all have ended."""
    accounting = artefacts.accounting
    chosen = [] if accounting.foreign or artefacts.job is None else accounting.chosen(artefacts.job)
    if len(accounting.parts) < 2 or not chosen:
        job = check_job(artefacts)
        if accounting.foreign or job.cause in NOT_OVER:
            return [job], False
        return [job, check_steps(artefacts, world.runs)], True
    checks, ended = [], True
    for part in chosen:
        component = replace(artefacts, job=part, accounting=accounting.parts[part])
        job = check_job(component)
        ended = ended and job.cause not in NOT_OVER
        both = [job] if job.cause in NOT_OVER else [job, check_steps(component, [])]
        checks += [replace(check, name=f"{part} {check.name}") for check in both]
    return checks, ended


def _log_of_rank_0(artefacts: Artefacts) -> Log | None:
    return next((log for log in artefacts.logs if log.rank in (None, 0)), None)


def _results(artefacts: Artefacts, world: World, form: ResultsForm) -> tuple[list[Check], dict[str, float]]:
    """Check the folder of results; return the metrics of the last epoch, too."""
    files = check_files(artefacts, form)
    if METRICS not in (*form.required, *artefacts.sizes):
        return [files], {}
    log = _log_of_rank_0(artefacts)
    readable, metrics = read_metrics(artefacts, form, log)
    checks = [
        files,
        readable,
        check_epochs(metrics, asked_epochs(world.runs, log), log),
        check_finite(metrics, form),
        check_losses(metrics, log),
    ]
    return checks, final_values(metrics, form)
