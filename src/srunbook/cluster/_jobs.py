"""Submit jobs, read what they write, and wait for their ends."""

from __future__ import annotations

import codecs
import math
import re
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from srunbook.cluster._commands import ROOT, capture, entering, home_of
from srunbook.cluster._errors import ClusterError, Say, SpecificationError, say_nothing
from srunbook.cluster._scripts import shell_script
from srunbook.cluster._sections import USER
from srunbook.cluster._state import State
from srunbook.slurm import Run, SacctRow, ask_accounting, ask_outputs, is_over, queue_states

FIELDS = ("JobID", "JobName", "Partition", "State", "ExitCode", "Elapsed", "NodeList")
"""Columns of sacct that a job's row shows."""

BESIDE = (".py", ".yaml", ".yml", ".json", ".toml", ".ini", ".cfg")
"""Endings of the files that a script takes along from its own folder: programs, and what configures them."""

PATIENCE = 300.0
"""Seconds to wait for final rows: many clusters may share a machine."""


@dataclass(frozen=True)
class FinishedJob:
    """A job that has ended.

    Args:
        identity: Its number.
        rows: Rows of sacct for the job and its steps, including all elements of an array and all components.
        output: The contents of its output file. For an array, the contents of each element's file, below a line with
            the file's name.
        exit_status: Exit status of the job as a shell would give it; 1 if it failed without one. For an array or a
            heterogeneous job, the exit status of the first part that failed.
    """

    identity: str
    rows: list[dict[str, str]]
    output: str
    exit_status: int

    @property
    def state(self) -> str:
        """Return the state of the job in accounting, such as COMPLETED, or of its first part that failed."""
        states = [row["State"].split()[0] for row in self.rows if "." not in row["JobID"]]
        return next((state for state in states if state != "COMPLETED"), *states[:1] or ["UNKNOWN"])


def stage(state: State, script: Path, *, user: str = USER, extra: Sequence[Path] = ()) -> str:
    """Copy a job script, byte for byte, and the files that it needs into a new folder in a user's home directory.

    This includes the Python and configuration files in its own folder; `extra` lists further files and folders. If a
    folder contains the script, only the folder's contents are copied. The user makes the folder and writes the files. A
    link in a folder is copied as a link.

    Returns:
        The folder's path on the cluster.

    Raises:
        SpecificationError: There is no such script, file or folder.
        ClusterError: The files could not be written there.
    """
    if not script.is_file():
        raise SpecificationError(f"no such script: {script}. Give a file, as in train.sbatch")
    command = ["sh", "-c", shell_script("stage"), "sh", script.stem]
    line = entering(state, "login", command, user=user, login=False)
    with tempfile.TemporaryFile() as stream:
        with tarfile.open(fileobj=stream, mode="w") as archive:
            for path, name in _beside(script, extra):
                archive.add(path, name)
        stream.seek(0)
        done = subprocess.run(line, stdin=stream, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise ClusterError(f"{script.name} could not be copied into {home_of(user)}: {done.stderr.strip()}")
    return f"{home_of(user)}/{done.stdout.strip()}"


def _beside(script: Path, extra: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Yield files and folders and their names; of several with the same name the last one stays: the script."""
    folder = script.resolve().parent
    for path in sorted(folder.iterdir()):
        if path.suffix in BESIDE and path.name != script.name and (path.is_file() or path.is_symlink()):
            yield path, path.name
    for path in extra:
        if path.is_dir() and folder.is_relative_to(path.resolve()):
            yield from ((child, child.name) for child in sorted(path.iterdir()))
        elif path.exists():
            yield path.resolve(), path.resolve().name if path.is_dir() else path.name
        else:
            raise SpecificationError(f"{script.name} needs {path}, which is neither a file nor a folder")
    yield script.resolve(), script.name


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
        arguments: Arguments of the script.
        user: The user who submits it.
        options: Options of sbatch.
        extra: Files and folders that the script needs beside it, as for `stage`.
        folder: The folder on the cluster where it is submitted; by default, the new folder that `stage` makes.
        follow: A function that gets the job's output as it grows; for an array, the output of one element after
            another.
        timeout: Seconds after which the job is cancelled.

    Returns:
        The job.

    Raises:
        SpecificationError: There is no such user, script, file or folder, or the user is root.
        ClusterError: sbatch rejected it, or the job did not end in time.
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
    state: State, job: str, *, user: str = USER, follow: Say = say_nothing, timeout: float | None = None
) -> FinishedJob:
    """Wait for the end of a job, or of an element of an array, as `submit` does."""
    pieces: list[str] = []

    def tell(text: str) -> None:
        pieces.append(text)
        follow(text)

    output = _Output(state, job, user, tell)
    run = _running(state)
    deadline = time.monotonic() + (math.inf if timeout is None else timeout)
    seen: set[str] = set()
    while True:
        parts = queue_states(job, run)
        seen.update(part for part in parts or () if re.fullmatch(r"\d+(?:[_+]\d+)?", part))
        over = parts is not None and all(map(is_over, parts.values()))
        output.read(parts or {}, last=over)
        if over:
            break
        if not state.alive:
            raise ClusterError(f"cluster {state.specification.name!r} went down while job {job} ran")
        if time.monotonic() > deadline:
            run(["scancel", job])
            text = "".join(pieces)
            raise ClusterError(f"job {job} had not ended after {timeout:.0f} s and was cancelled; it said:\n{text}")
        time.sleep(0.3)
    rows = _final_rows(state, job, seen)
    statuses = [
        row.exit_code or (128 + row.signal if row.signal else int(row.state != "COMPLETED"))
        for row in rows
        if not row.step
    ]
    shown = [{name: row.columns[name] for name in FIELDS} for row in rows]
    return FinishedJob(job, shown, "".join(pieces), next(filter(None, statuses), 0 if statuses else 1))


def _final_rows(state: State, job: str, parts: set[str]) -> list[SacctRow]:
    """Ask until the rows are final and name all parts of the job that were seen; one may come after the others."""
    deadline = time.monotonic() + PATIENCE
    while True:
        accounting = ask_accounting(job, _running(state), more=["JobName"], patience=PATIENCE)
        if accounting.problem:
            raise ClusterError(accounting.problem)
        missing = parts - {row.columns["JobID"] for row in accounting.last}
        if not missing:
            return accounting.last
        if time.monotonic() > deadline:
            raise ClusterError(f"accounting had no rows of {', '.join(sorted(missing))} after {PATIENCE:.0f} s")
        time.sleep(0.3)


def _running(state: State, user: str | None = None) -> Run:
    """Return what runs a command of Slurm on the login node, as root or as a user, without the user's profile."""
    return lambda command: capture(state, command, user=user, login=False)


class _Output:
    """What a job writes to its output files, read as its user, who can only mislead themselves.

    Elements of an array are read one after the other in the order of their numbers, so that their lines do not mix.
    Each has the name of its file above what comes from it.
    """

    def __init__(self, state: State, job: str, user: str, follow: Say) -> None:
        self._state, self._job, self._user, self._follow = state, job, user, follow
        self._paths: dict[str, str | None] = {}
        self._offsets: dict[str, int] = {}
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}
        self._done: set[str] = set()
        self._shown: str | None = None

    def read(self, parts: Mapping[str, str], *, last: bool) -> None:
        """Read what is new.

        Args:
            parts: State of each part of the job, by number.
            last: Whether the job has ended, so that nothing more will come.
        """
        for part, state in parts.items():
            if not is_over(state):
                self._done.discard(part)  # it was requeued
            if part not in self._paths and state not in ("PENDING", "CONFIGURING"):
                self._paths[part] = self._path_of(part)
        numbers = {part: [int(number) for number in re.findall("[0-9]+", part)] for part in self._paths}
        for part in sorted(self._paths.keys() - self._done, key=numbers.__getitem__):  # 56_3 comes before 56_10
            over = last or part not in parts or is_over(parts[part])
            if path := self._paths[part]:
                self._read_file(path, titled="_" in part and part != self._job, over=over)
            if not over:
                return
            self._done.add(part)

    def _path_of(self, part: str) -> str | None:
        """Ask for the output file of a part."""

        def head(path: str) -> list[str]:
            return self._bytes_from(path, 0).decode(errors="replace").splitlines()

        files = ask_outputs(part, _running(self._state, self._user), head).get(part)
        return files.output if files and files.output != "/dev/null" else None

    def _read_file(self, path: str, *, titled: bool, over: bool) -> None:
        new = self._bytes_from(path, self._offsets.get(path, 0))
        self._offsets[path] = self._offsets.get(path, 0) + len(new)
        decoder = self._decoders.setdefault(path, codecs.getincrementaldecoder("utf-8")("replace"))
        text = decoder.decode(new, final=over)
        if titled and path != self._shown:
            text = f"==> {PurePosixPath(path).name} <==\n{text}"
            self._shown = path
        if text:
            self._follow(text)

    def _bytes_from(self, path: str, offset: int) -> bytes:
        """Read a regular file from a byte on, without the user's profile, which may print, too."""
        command = ["sh", "-c", '[ ! -f "$1" ] || exec tail --bytes="+$2" "$1"', "sh", path, str(offset + 1)]
        line = entering(self._state, "login", command, user=self._user, login=False)
        return subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, check=False).stdout
