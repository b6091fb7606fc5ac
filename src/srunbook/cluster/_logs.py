"""Showing what a job has written, while it runs and long after its end."""

from __future__ import annotations

from srunbook.cluster._asking import asking
from srunbook.cluster._errors import ClusterError, SpecificationError
from srunbook.cluster._following import Output
from srunbook.cluster._jobs import watch
from srunbook.cluster._progress import Say, say_nothing
from srunbook.cluster._state import State
from srunbook.slurm import ask_accounting, is_job_id, is_over, queue_states


def logs(state: State, job: str, show: Say, *, follow: bool = False, say: Say = say_nothing) -> None:
    """Show the files that a job has written its output to, read by its user.

    They may have any name: Slurm says which they are. Where there are several, as of an array or with an `--error` of
    its own, each has a line with its name above it.

    Args:
        state: The cluster.
        job: Number of the job, of an element of an array such as `56_3`, or of a component such as `56+1`.
        show: Is given the text, in pieces.
        follow: Whether to go on until the job ends.
        say: Is told why there is nothing to show.

    Raises:
        SpecificationError: That is no number of a job.
        ClusterError: Slurm knows no such job, or its accounting does not answer.
    """
    if not is_job_id(job):
        raise SpecificationError(f"job {job!r}: give a number, as in 17, in 56_3 for an element or in 56+1")
    shown: list[bool] = []

    def tell(text: str) -> None:
        shown[:] = [True]
        show(text)

    output = Output(state, job, _owner(state, job), tell, errors=True)
    parts = _parts(state, job)
    if follow and not all(map(is_over, parts.values())):
        watch(state, job, output)
    while not output.read(parts, last=True):
        pass
    if not shown:
        say(_nothing(job, parts, output))


def _owner(state: State, job: str) -> str:
    """Return the name of the user whose job it is."""
    for command in (
        ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%u"],
        ["sacct", "--noheader", "--allocations", "--parsable2", f"--jobs={job}", "--format=User"],
    ):
        done = asking(state)(command)
        if done.returncode == 0 and done.stdout.split():
            return done.stdout.split()[0]
    raise ClusterError(
        f"Slurm knows no job {job} on cluster {state.specification.name!r}: "
        "`srunbook cluster exec -- sacct --allusers` lists those that it knows"
    )


def _parts(state: State, job: str) -> dict[str, str]:
    """Return the state of each part of a job: squeue forgets a job some minutes after its end, and sacct does not."""
    found = queue_states(job, asking(state))
    if found:
        return found
    accounting = ask_accounting(job, asking(state))
    if accounting.problem:
        raise ClusterError(f"the accounting cannot be asked: {accounting.problem}")
    return {part: rows.last[0].state for part, rows in accounting.of(job).parts.items()}


def _nothing(job: str, parts: dict[str, str], output: Output) -> str:
    """Say why there is nothing to show."""
    states = ", ".join(dict.fromkeys(parts.values()))
    if not output.paths:
        return f"job {job} ({states}) has not started, so it has written nothing"
    paths = [path for found in output.paths.values() for path in found]
    where = f"its output goes to {', '.join(paths[:3])}" if paths else "Slurm names no file of its own for its output"
    return f"job {job} ({states}) has written nothing: {where}"
