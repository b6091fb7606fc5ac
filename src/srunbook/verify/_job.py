"""Check what Slurm says: the job, and every step."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from itertools import pairwise

from srunbook.slurm import SacctRow, leading_number
from srunbook.verify._artefacts import Artefacts
from srunbook.verify._causes import Cause
from srunbook.verify._launches import STEP, RankRun
from srunbook.verify._report import Check, failed, not_proven, passed
from srunbook.verify._words import few

STATES = {
    "OUT_OF_MEMORY": Cause.OUT_OF_MEMORY,
    "NODE_FAIL": Cause.NODE_FAIL,
    "TIMEOUT": Cause.TIMEOUT,
    "": Cause.OTHER_STATE,
    "CANCELLED": Cause.CANCELLED,
    "FAILED": Cause.FAILED,
}
"""Causes by state, the most telling first: Slurm cancels the steps of a job that it ends for any other reason."""

NEXT = {
    Cause.OUT_OF_MEMORY: "sacct -j {job} --format=JobID,MaxRSS,ReqMem shows how much it took; ask for more with --mem",
    Cause.NODE_FAIL: "sinfo -R says why the node is down; submit again, with --requeue where the program can resume",
    Cause.TIMEOUT: "ask for more time, as in sbatch --time=02:00:00, or resume from the checkpoint",
    Cause.OTHER_STATE: "sacct -j {job} --format=JobID,State,Reason,ExitCode says why; then submit again",
    Cause.CANCELLED: "somebody ended it: sacct -j {job} --format=JobID,State%30 says who; then submit again",
    Cause.FAILED: "the first error in its log is the one to read: grep -n -m1 -i error {log}",
}
"""What to do, by cause."""

WITHOUT_LOG = (
    "its log, which was not found here, has the first error: sacct -j {job} --format=WorkDir%100 says where it was "
    "submitted"
)

STATUSES = {
    75: "a program that stops at a signal saves and ends with 75: submit it again, with the same --checkpoint-dir",
    78: "78 says that it would only fail again in the same way: read the last lines of {log}",
}
"""What to do, by exit code; these two are those of `srunbook.signals`."""


def check_job(artefacts: Artefacts) -> Check:
    """Check that accounting knows the job and no other, that it has ended, and is COMPLETED."""
    accounting = artefacts.accounting
    if accounting.foreign:
        return failed(
            "job",
            Cause.OTHER_JOB,
            f"{accounting.source} gave rows of job {few(accounting.foreign)}, which is not part of job {artefacts.job}",
            f"see what it prints: sacct -j {artefacts.job} --format=JobID,JobIDRaw,State,ExitCode",
        )
    if not accounting.rows:
        return _without_rows(artefacts)
    row = accounting.last[0]
    attempts = [attempt[0].state for attempt in accounting.attempts]
    earlier = f"; attempt {len(attempts)}, the earlier ended {', '.join(attempts[:-1])}" if attempts[1:] else ""
    if not row.ended:
        return _not_ended(artefacts, row, requeued=len(attempts) > 1 or row.state == "REQUEUED")
    evidence = f"{_ending(row)}, {_nodes(row)}, elapsed {row.elapsed or 'unknown'}, says {accounting.source}{earlier}"
    if _fine(row):
        return passed("job", evidence)
    cause = _worst(accounting.last)
    others = [step for step in accounting.last[1:] if _cause(step) is cause is not _cause(row)]
    named = f"; {others[0].identity} is {_ending(others[0])}" if others else ""
    return failed("job", cause, f"{evidence}{named}; expected COMPLETED 0:0", _next(cause, artefacts, row))


def _without_rows(artefacts: Artefacts) -> Check:
    accounting, job = artefacts.accounting, artefacts.job
    if accounting.problem:
        return not_proven(
            "job", accounting.problem, "run srunbook verify where sacct is, on a login node, with the number of the job"
        )
    if accounting.queued == "PENDING":
        return failed(
            "job", Cause.PENDING, "PENDING, says squeue", f"squeue -j {job} --format=%r says what it waits for"
        )
    if accounting.queued:
        return failed("job", Cause.RUNNING, f"{accounting.queued}, says squeue", _again(job))
    return failed(
        "job",
        Cause.UNKNOWN_JOB,
        f"sacct knows no job {job}",
        "look for its number with sacct --starttime=now-7days; a job of another cluster needs SLURM_CLUSTERS=NAME",
    )


def _not_ended(artefacts: Artefacts, row: SacctRow, *, requeued: bool) -> Check:
    job = artefacts.job
    evidence = f"{row.state}, {_nodes(row)}, elapsed {row.elapsed or 'unknown'}, says {artefacts.accounting.source}"
    if requeued:
        before = [attempt[0].state for attempt in artefacts.accounting.attempts if attempt[0].state != row.state]
        ended = f"; the attempt before ended {before[-1]}" if before else ""
        return failed(
            "job",
            Cause.REQUEUED,
            f"requeued: {evidence}{ended}",
            f"wait until it has ended again; squeue -j {job} --format='%T %r' says what it waits for",
        )
    if row.state == "PENDING":
        return failed("job", Cause.PENDING, evidence, f"squeue -j {job} --format=%r says what it waits for")
    return failed("job", Cause.RUNNING, evidence, _again(job))


def check_steps(artefacts: Artefacts, runs: Sequence[RankRun]) -> Check:
    """Check that every step is COMPLETED 0:0, and that srun started one, or else that ranks say they ran."""
    rows = artefacts.accounting.last
    if not rows:
        return not_proven("steps", "sacct gave no rows")
    steps = rows[1:]
    wrong = [step for step in steps if not _fine(step)]
    if wrong:
        cause = _worst(rows)
        named = ", ".join(f"{step.identity} is {_ending(step)}" for step in wrong[:8])
        more = f" and {len(wrong) - 8} more" if wrong[8:] else ""
        hint = _next(cause, artefacts, wrong[0]) if _fine(rows[0]) else ""  # else the job says it
        return failed("steps", cause, f"{named}{more}; expected COMPLETED 0:0", hint)
    if not runs and not any(STEP.fullmatch(step.step) for step in steps):
        return failed(
            "steps",
            Cause.RAN_NOTHING,
            f"sacct has {', '.join(step.identity for step in steps) or 'no steps'}, and no step of srun",
            "the script ended before srun, or calls the program without it: put srun before the program",
        )
    gap = _gap(steps, first=len(artefacts.accounting.attempts) > 1)
    if gap:
        evidence = f"sacct has no row of step {gap}, though Slurm numbers steps without a gap"
        return not_proven("steps", evidence, "how that step ended is unknown: ask again later")
    more = f" and {len(steps) - 8} more" if steps[8:] else ""
    return passed("steps", ", ".join(f"{step.identity} {_ending(step)}" for step in steps[:8]) + more)


def _gap(steps: Sequence[SacctRow], *, first: bool) -> str:
    """Name the first step that is missing before or between others; components may leave numbers out.

    Args:
        steps: The steps of an attempt.
        first: Whether they may begin with any number, as when earlier attempts had others.
    """
    numbers = sorted({int(step.step) for step in steps if step.step.isdigit() and "+" not in step.job_id})
    numbers = numbers if first else [-1, *numbers]
    missing = next((one + 1 for one, other in pairwise(numbers) if other > one + 1), None)
    return "" if missing is None else f"{steps[0].job_id}.{missing}"


def _fine(row: SacctRow) -> bool:
    return (row.state, row.exit_code, row.signal) == ("COMPLETED", 0, 0)


def _ending(row: SacctRow) -> str:
    return f"{row.state} {row.exit_code}:{row.signal}"


def _nodes(row: SacctRow) -> str:
    count = f"{row.nodes} node{'' if row.nodes == 1 else 's'}" if row.nodes else "an unknown number of nodes"
    return f"{count} ({row.node_list})" if row.node_list else count


def _cause(row: SacctRow) -> Cause:
    return STATES.get("FAILED" if row.state == "COMPLETED" else row.state, Cause.OTHER_STATE)


def _worst(rows: Iterable[SacctRow]) -> Cause:
    wrong = [row for row in rows if not _fine(row)]
    telling = [row for row in wrong if not (row.step and row.state == "CANCELLED")] or wrong
    return min(map(_cause, telling), key=list(STATES.values()).index)


def _next(cause: Cause, artefacts: Artefacts, row: SacctRow) -> str:
    """Say what to do about a row of sacct."""
    text = STATUSES.get(row.exit_code, NEXT[cause]) if cause is Cause.FAILED else NEXT[cause]
    log = _log(artefacts)
    if "{log}" in text and log is None:
        text = WITHOUT_LOG
    return text.format(job=artefacts.job, log=log and shlex.quote(log))


def _log(artefacts: Artefacts) -> str | None:
    """Return the path of the file that says why a job failed, or None where no such file was found."""
    results = artefacts.results
    errors = results.with_name(f"{results.name}.err") if results is not None and results.name else None
    if errors is not None and errors.is_file():  # what failed says so in the job's own error file
        return str(errors)
    return artefacts.logs[0].name if artefacts.logs else None


def _again(job: str | None) -> str:
    number = job if job is None or "[" not in job else leading_number(job)
    return f"wait until it has ended, then ask again: srunbook verify {number}"
