"""Say who saves: each save notes its host, process and job, so that two writers can name each other."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from srunbook.checkpoint import _manifest
from srunbook.checkpoint._errors import CheckpointError, plain
from srunbook.checkpoint._files import write_small
from srunbook.checkpoint._reading import read_small

NOTE = "save.json"
"""Name of the note, in the directory of a save and of the checkpoint that becomes of it."""

LARGEST_NOTE = 1 << 16

PATIENCE = 60.0
"""How long, in seconds, a save waits for that of another job, which counts as ended if it writes nothing so long."""


@dataclass(frozen=True)
class Writer:
    """A process that saves.

    Args:
        host: Name of its node.
        pid: Its process ID.
        job: Number of its Slurm job; None outside of Slurm.
        attempt: How often Slurm has requeued the job, as Slurm says it.
    """

    host: str
    pid: int
    job: str | None
    attempt: str

    @classmethod
    def here(cls) -> Writer:
        """Return this process."""
        job, attempt = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_RESTART_COUNT", "0")
        return cls(os.uname().nodename, os.getpid(), job, attempt)

    @classmethod
    def noted(cls, content: dict[str, object]) -> Writer:
        """Return the process that a note names.

        Raises:
            ValueError: It names none.
        """
        host, pid, job = (content.get(field) for field in ("host", "pid", "job"))
        if not (isinstance(host, str) and isinstance(pid, int) and pid > 0 and (job is None or isinstance(job, str))):
            raise ValueError("names no process")
        return cls(host, pid, job, str(content.get("attempt")))

    def is_gone(self) -> bool:
        """Return whether the process has certainly ended, or is this one, which knows what it does."""
        here = Writer.here()
        if self.job and self.job == here.job and self.attempt != here.attempt:
            return True
        if self.host != here.host:
            return False
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return True
        except PermissionError:
            return False
        return self.pid == here.pid

    def __str__(self) -> str:
        job = f"job {plain(self.job)}, " if self.job else ""
        return f"{job}process {self.pid} on {plain(self.host)}"


@dataclass(frozen=True)
class Note:
    """What the directory of a save says of its origin.

    Args:
        save_id: Random name of the save.
        team: Name that the processes of the job have in common, and no other job has.
        writer: Process 0 of the job.
    """

    save_id: str
    team: str
    writer: Writer


def write_note(folder: Path, save_id: str, team: str) -> None:
    """Note in the directory of a save that this process begins it.

    Raises:
        OSError: It could not be written.
    """
    write_small(folder / NOTE, _manifest.seal(asdict(Note(save_id, team, Writer.here()))))


def read_note(folder: Path) -> Note | None:
    """Return what a directory says of its origin; None if it says nothing, or nothing that can be read."""
    path = folder / NOTE
    try:
        content = _manifest.unseal(read_small(path, LARGEST_NOTE), str(path))
        return Note(str(content["save_id"]), str(content["team"]), Writer.noted(content["writer"]))
    except (CheckpointError, OSError, KeyError, ValueError, AttributeError):
        return None


def saved_by(folder: Path) -> str:
    """Return who saved a checkpoint, as an insertion in a sentence; empty if that is not known."""
    note = read_note(folder)
    return f", saved by {note.writer}" if note else ""


def others(folders: Iterable[Path], team: str | None) -> list[str]:
    """List who saves to, or has saved, some directories, apart from one's own team."""
    notes = [read_note(folder) for folder in folders]
    return sorted({str(note.writer) for note in notes if note and note.team != team})


def wait_for_others(directory: Path, team: str) -> None:
    """Wait until no other job saves to the directory, so that neither disturbs the other.

    Raises:
        CheckpointError: Another job is still saving after a minute.
        OSError: The directory cannot be read.
    """
    deadline, pause = time.monotonic() + PATIENCE, 0.02
    while busy := [path for path in directory.glob("step-*.partial") if _is_in_progress(path, team)]:
        if time.monotonic() > deadline:
            who = "; ".join(others(busy, team)) or "another job"
            raise CheckpointError(
                f"{who} has been saving to {directory} as {busy[0].name} for more than {PATIENCE:.0f} s; give each job "
                "a directory of its own"
            )
        time.sleep(pause)
        pause = min(2 * pause, 1.0)


def _is_in_progress(path: Path, team: str) -> bool:
    note = read_note(path)
    if note is None or note.team == team or note.writer.is_gone():
        return False
    try:
        written = max(one.lstat().st_mtime for one in (path, *path.iterdir()))
    except OSError:
        return False
    return abs(time.time() - written) < PATIENCE
