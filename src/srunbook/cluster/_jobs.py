"""Submit jobs, read what they write, and wait for their ends."""

from __future__ import annotations

import codecs
import math
import re
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from srunbook.cluster._commands import ROOT, capture, entering
from srunbook.cluster._copying import stage
from srunbook.cluster._errors import ClusterError, Say, SpecificationError, say_nothing
from srunbook.cluster._sections import USER
from srunbook.cluster._state import State
from srunbook.slurm import Run, SacctRow, ask_accounting, ask_outputs, is_job_id, is_over, queue_states

FIELDS = ("JobID", "JobName", "Partition", "State", "ExitCode", "Elapsed", "NodeList")
"""Columns of sacct that a job's row shows."""

PATIENCE = 300.0
"""Seconds to wait for final rows: many clusters may share a machine."""


@dataclass(frozen=True)
class FinishedJob:
    """A job that has ended.

    Args:
        identity: Its number.
        rows: Rows of sacct for the job and its steps: for all elements of an array, for all components.
        output: What it wrote to its output file. Of an array, what each element wrote, each under a line with the
            name of its file.
        exit_status: Exit status of the job as a shell would give it; 1 where it failed without one. Of an array or a
            heterogeneous job, that of the first part that failed.
    """

    identity: str
    rows: list[dict[str, str]]
    output: str
    exit_status: int

    @property
    def state(self) -> str:
        """Return the state of the job in accounting, such as COMPLETED; of several parts, of the first that failed."""
        states = [row["State"].split()[0] for row in self.rows if "." not in row["JobID"]]
        return next((state for state in states if state != "COMPLETED"), *states[:1] or ["UNKNOWN"])


def submit(
    state: State,
    script: Path,
    arguments: Sequence[str] = (),
    *,
    user: str = USER,
    options: Sequence[str] = (),
    extra: Sequence[Path] = (),
    folder: str | None = None,
    follow: Say = say_nothing,
    timeout: float | None = None,
) -> FinishedJob:
    """Submit a job script unmodified and wait for the end of the job, of all its elements and components.

    Args:
        state: The cluster.
        script: The script on the host.
        arguments: What is passed to the script.
        user: Who submits it.
        options: Options of sbatch.
        extra: Files and folders that it needs beside it, besides the Python and configuration files that lie there.
        folder: Where it is submitted, on the cluster; by default a new folder with the script and these files.
        follow: Is given the job's output as it grows.
        timeout: Seconds after which the job is cancelled.

    Returns:
        The job.

    Raises:
        SpecificationError: There is no such user, script, file or folder, or the user is root.
        ClusterError: sbatch refused it, or the job did not end in time.
    """
    if user == ROOT:
        users = ", ".join(state.specification.users)
        raise SpecificationError(f"user 'root': a job belongs to a user of the cluster, which has {users}")
    folder = folder or stage(state, script, user=user, extra=extra)
    command = ["sbatch", "--parsable", *options, script.name, *arguments]
    result = capture(state, command, user=user, folder=folder)
    if result.returncode != 0:
        raise ClusterError(f"sbatch refused {script.name}:\n{result.stderr.strip()}")
    if result.stderr.strip():
        follow(result.stderr)
    job = re.search(r"^(\d+)(;\S*)?\n\Z", result.stdout, re.MULTILINE)  # the user's profile may print lines before it
    if not job:
        raise ClusterError(f"sbatch printed {result.stdout!r} and not the number of the job")
    return await_job(state, job[1], user=user, follow=follow, timeout=timeout)


def await_job(
    state: State,
    job: str,
    *,
    user: str = USER,
    follow: Say = say_nothing,
    timeout: float | None = None,
) -> FinishedJob:
    """Wait for the end of a job, following its output.

    Args:
        state: The cluster.
        job: Its number, or that of an element of an array.
        user: Whose job it is.
        follow: Is given the job's output as it grows; of an array, that of one element after the other.
        timeout: Seconds after which the job is cancelled.

    Raises:
        ClusterError: It did not end in time, and was cancelled.
    """
    pieces: list[str] = []

    def tell(text: str) -> None:
        pieces.append(text)
        follow(text)

    try:
        seen = _watch(state, job, _Output(state, job, user, tell), timeout)
    except TimeoutError:
        _asking(state)(["scancel", job])
        output = "".join(pieces)
        raise ClusterError(
            f"job {job} had not ended after {timeout:.0f} s and was cancelled; it said:\n{output}"
        ) from None
    rows = _account(state, job, seen)
    statuses = [
        row.exit_code or (128 + row.signal if row.signal else int(row.state != "COMPLETED"))
        for row in rows
        if not row.step
    ]
    return FinishedJob(job, _shown(rows), "".join(pieces), next(filter(None, statuses), 0 if statuses else 1))


def _watch(state: State, job: str, output: _Output, timeout: float | None = None) -> set[str]:
    """Read the output of a job until its end; return the numbers of its parts."""
    deadline = time.monotonic() + (math.inf if timeout is None else timeout)
    seen: set[str] = set()
    while True:
        parts = queue_states(job, _asking(state))
        seen.update(part for part in parts or () if re.fullmatch(r"\d+(?:[_+]\d+)?", part))
        over = parts is not None and all(map(is_over, parts.values()))
        output.read(parts or {}, last=over)
        if over:
            return seen
        if not state.alive:
            raise ClusterError(f"cluster {state.specification.name!r} went down while job {job} ran")
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.3)


def account(state: State, job: str) -> list[dict[str, str]]:
    """Return the rows of sacct for a job and its steps.

    Accounting lags the end of a job, so this waits until the rows of one that has ended are final.

    Args:
        state: The cluster.
        job: Its number.

    Raises:
        ClusterError: sacct printed something else.
    """
    return _shown(_account(state, job))


def _account(state: State, job: str, parts: Collection[str] = ()) -> list[SacctRow]:
    """Ask until the rows are final and name all parts of the job that were seen; one may come after the others."""
    deadline = time.monotonic() + PATIENCE
    while True:
        accounting = ask_accounting(job, _asking(state), more=["JobName"], patience=PATIENCE)
        if accounting.problem:
            raise ClusterError(accounting.problem)
        missing = set(parts) - {row.columns["JobID"] for row in accounting.last}
        if not missing:
            return accounting.last
        if time.monotonic() > deadline:
            raise ClusterError(f"accounting had no rows of {', '.join(sorted(missing))} after {PATIENCE:.0f} s")
        time.sleep(0.3)


def _shown(rows: Sequence[SacctRow]) -> list[dict[str, str]]:
    return [{name: row.columns[name] for name in FIELDS} for row in rows]


def logs(state: State, job: str, show: Say, *, follow: bool = False, say: Say = say_nothing) -> None:
    """Show the files that a job has written its output to, read by its user.

    They may have any name: Slurm says which they are. Where there are several, as of an array or with an `--error` of
    its own, each has a line with its name above it.

    Args:
        state: The cluster.
        job: Number of the job, of an element of an array such as `56_3`, or of a component such as `56+1`.
        show: Is given the text, in pieces.
        follow: Whether to continue until the job ends.
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

    output = _Output(state, job, _owner(state, job), tell, errors=True)
    parts = _parts(state, job)
    if follow and not all(map(is_over, parts.values())):
        _watch(state, job, output)
    output.read(parts, last=True)
    if not shown:
        say(_nothing(job, parts, output))


def _owner(state: State, job: str) -> str:
    """Return the name of the user whose job it is."""
    for command in (
        ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%u"],
        ["sacct", "--noheader", "--allocations", "--parsable2", f"--jobs={job}", "--format=User"],
    ):
        done = _asking(state)(command)
        if done.returncode == 0 and done.stdout.split():
            return done.stdout.split()[0]
    raise ClusterError(
        f"Slurm knows no job {job} on cluster {state.specification.name!r}: "
        "`srunbook cluster exec -- sacct --allusers` lists those that it knows"
    )


def _parts(state: State, job: str) -> dict[str, str]:
    """Return the state of each part of a job: squeue forgets a job some minutes after its end, and sacct does not."""
    states = queue_states(job, _asking(state))
    if states:
        return states
    accounting = ask_accounting(job, _asking(state))
    if accounting.problem:
        raise ClusterError(f"the accounting cannot be asked: {accounting.problem}")
    return {part: rows.last[0].state for part, rows in accounting.of(job).parts.items()}


def _nothing(job: str, parts: dict[str, str], output: _Output) -> str:
    """Say why there is nothing to show."""
    states = ", ".join(dict.fromkeys(parts.values()))
    if not output.paths:
        return f"job {job} ({states}) has not started, so it has written nothing"
    paths = [path for files in output.paths.values() for path in files]
    where = f"its output goes to {', '.join(paths[:3])}" if paths else "Slurm names no file of its own for its output"
    return f"job {job} ({states}) has written nothing: {where}"


def _asking(state: State, user: str | None = None) -> Run:
    """Return what runs a command of Slurm on the login node, as root or as a user, without the user's profile."""
    return lambda command: capture(state, command, user=user, login=False)


class _Output:
    """What a job writes to its files, read as its user, who can only mislead themselves.

    Elements of an array are read one after the other in the order of their numbers, so that their lines do not mix.
    Each file of several has its name above what comes from it.

    Args:
        state: The cluster.
        job: Number of the job.
        user: Whose job it is.
        follow: Is given the text as it grows.
        errors: Whether to read the files of standard error, too, where they are others.
    """

    def __init__(self, state: State, job: str, user: str, follow: Say, *, errors: bool = False) -> None:
        self.paths: dict[str, list[str]] = {}
        self._state, self._job, self._user, self._follow, self._errors = state, job, user, follow, errors
        self._offsets: dict[str, int] = {}
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}
        self._done: set[str] = set()
        self._shown = ""

    def read(self, parts: Mapping[str, str], *, last: bool) -> None:
        """Read what is new.

        Args:
            parts: State of each part of the job, by number.
            last: Whether the job has ended, so that nothing more will come.
        """
        for part, state in parts.items():
            if not is_over(state):
                self._done.discard(part)  # it was requeued
            if part not in self.paths and state not in ("PENDING", "CONFIGURING"):
                self.paths[part] = self._paths_of(part)
        numbers = {part: [int(number) for number in re.findall("[0-9]+", part)] for part in self.paths}
        for part in sorted(self.paths.keys() - self._done, key=numbers.__getitem__):  # 56_3 comes before 56_10
            over = last or part not in parts or is_over(parts[part])
            for path in self.paths[part]:
                self._read_file(part, path, over=over)
            if not over:
                return
            self._done.add(part)

    def _paths_of(self, part: str) -> list[str]:
        """Ask for the files of a part."""

        def head(path: str) -> list[str]:
            return self._bytes_from(path, 0).decode(errors="replace").splitlines()

        files = ask_outputs(part, _asking(self._state, self._user), head).get(part)
        names = [files.output, *([files.errors] if self._errors else [])] if files else []
        return [path for path in dict.fromkeys(names) if path != "/dev/null"]

    def _read_file(self, part: str, path: str, *, over: bool) -> None:
        new = self._bytes_from(path, self._offsets.get(path, 0))
        decoder = self._decoders.setdefault(path, codecs.getincrementaldecoder("utf-8")("replace"))
        text = decoder.decode(new, final=over)
        titled = ("_" in part and part != self._job) or len(self.paths[part]) > 1
        if titled and (path not in self._offsets or (text and path != self._shown)):
            text = f"==> {PurePosixPath(path).name} <==\n{text}"
        self._offsets[path] = self._offsets.get(path, 0) + len(new)
        if text:
            self._shown = path
            self._follow(text)

    def _bytes_from(self, path: str, offset: int) -> bytes:
        """Read a regular file from a byte on, without the user's profile, which may print, too."""
        command = ["sh", "-c", '[ ! -f "$1" ] || exec tail --bytes="+$2" "$1"', "sh", path, str(offset + 1)]
        line = entering(self._state, "login", command, user=self._user, login=False)
        return subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, check=False).stdout
