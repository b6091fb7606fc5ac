"""Take one save to the disk."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from srunbook.checkpoint import _files, _manifest
from srunbook.checkpoint._arrays import Piece, pieces_of
from srunbook.checkpoint._directory import LOG, STEP, delete, free_bytes, steps_in
from srunbook.checkpoint._entries import FileEntry, Part
from srunbook.checkpoint._errors import CheckpointError, DamagedError
from srunbook.checkpoint._reading import read_small
from srunbook.checkpoint._writers import others, read_note, saved_by, write_note

OTHERS_AT_WORK = (errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY)
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
DEEPEST = 100
"""How many levels of mappings and lists metadata may have, so that JSON can read them back from any place."""
LOOKS = 5
"""How often to look who else saves: what was listed may have been renamed before it is read."""
GRACE_SECONDS = 60.0
"""How long a program that ends waits for the parts of other processes."""


class Save:
    """Do one process's part of one save. Errors are kept, since the other processes must not be left waiting.

    A save has a directory that bears the name of its team, so that no other job writes to it or takes it for its own.
    Another job may only rename it, and then the commit, which renames it as well, fails.

    Args:
        step: The step.
        final: The directory of the finished checkpoint.
        process_id: Number of this process.
        num_processes: Number of processes.
    """

    def __init__(self, step: int, final: Path, process_id: int, num_processes: int) -> None:
        self.step = step
        self.final = final
        self.team: str | None = None
        self.process_id = process_id
        self.num_processes = num_processes
        self.error: Exception | None = None
        self.needed = 0
        self.committed = False
        self._save_id: str | None = None
        self._known: set[str] = set()
        self._header = b""
        self._pieces: list[Piece] = []
        self._metadata: dict[str, Any] = {}
        self._thread: threading.Thread | None = None
        self._called = threading.Event()

    @property
    def partial(self) -> Path:
        """Where the save lies until it is committed."""
        return self.final.with_name(f"{self.final.name}.{self.team}.partial")

    @contextlib.contextmanager
    def keeping_errors(self) -> Iterator[None]:
        """Keep the first error, instead of raising it in the block."""
        try:
            yield
        except Exception as error:  # raised again by `Checkpoints`, after the barriers
            self.error = self.error or error

    def plan(self, tensors: Mapping[str, Any], metadata: Mapping[str, Any] | None, *, copy: bool) -> None:
        """Take what is to be written; copy it, so that the arrays may change, if asked to.

        Raises:
            TypeError: A tensor or the metadata cannot be stored.
        """
        with contextlib.suppress(OSError):
            self._known.update(os.listdir(self.final.parent))  # noqa: PTH208 - names are enough
        self._metadata = checked_metadata(metadata or {})
        self._pieces = pieces_of(tensors, self.process_id, copy=copy)
        if self._pieces:
            self._header = _files.header_of(self._pieces)
        self.needed = len(self._header) + sum(piece.bits.nbytes for piece in self._pieces)

    def open(self) -> None:
        """Make the directory of the save, as process 0.

        Raises:
            OSError: It cannot be made.
        """
        self._save_id = secrets.token_hex(8)
        self.discard()  # an earlier try of this step whose removal failed
        self.partial.mkdir()
        write_note(self.partial, self._save_id, str(self.team))

    def discard(self) -> None:
        """Remove what a failed save has written, as process 0."""
        with contextlib.suppress(OSError):
            delete(self.partial)

    def write(self) -> None:
        """Write what this process holds, and a report of it.

        Raises:
            CheckpointError: Process 0 did not begin the save.
            OSError: It could not be written.
        """
        if self._save_id is None:
            self._save_id = self._begun()
        name = _manifest.PART.format(self.process_id)
        tensors, boxes = _manifest.entries(self._pieces)
        file = None
        if self._pieces:
            self._check_space()
            size, sha256 = _files.write_part(self.partial / name, self._header, self._pieces)
            file = FileEntry(name, size, sha256, boxes)
        self._pieces = []
        report = _manifest.dump_part(Part(self._save_id, tensors, file))
        _files.write_small(self._report(self.process_id), report)
        _files.fsync_directory(self.partial)

    def commit(self) -> None:
        """Turn the save into a checkpoint with a rename, as process 0, when all processes have written.

        Raises:
            CheckpointError: Another process has not written, or the parts do not fit together.
        """
        parts = []
        for process_id in range(self.num_processes):
            path = self._report(process_id)
            try:
                part = _manifest.load_part(read_small(path), str(path))
                if part.file and (self.partial / part.file.name).stat().st_size != part.file.size:
                    raise DamagedError(f"{part.file.name} has not the size that was written")
            except (DamagedError, FileNotFoundError) as error:
                self.partial.stat()  # raises if another job has cleared away the whole save
                raise CheckpointError(
                    f"step {self.step} was not saved: process {process_id} of {self.num_processes} "
                    f"did not write its part, its own message says why ({error})"
                ) from None
            parts.append(part)
        manifest = _manifest.merge(self.step, str(self._save_id), self._metadata, parts)
        _files.write_small(self.partial / _manifest.NAME, _manifest.dump_manifest(manifest))
        for process_id in range(self.num_processes):
            os.unlink(self._report(process_id))  # noqa: PTH108 - as the renames
        if newer := [step for step in steps_in(self.final.parent) if step >= self.step]:
            newest = self.final.with_name(STEP.format(newer[-1]))
            raise CheckpointError(
                f"step {self.step} was not saved: {self.final.parent} has got step {newer[-1]} since the save "
                f"began{saved_by(newest)}; give each job a directory of its own"
            )
        _files.fsync_directory(self.partial)
        try:
            os.rename(self.partial, self.final)  # noqa: PTH104 - as the renames
        except FileNotFoundError:
            if not self._is_there():  # NFS may do a rename, lose the answer, and be asked again
                raise
        self.committed = True
        _files.fsync_directory(self.final.parent)

    def is_committed(self) -> bool:
        """Return whether the step in the directory is what this save wrote, and not another job's."""
        return self.committed or self._is_there()

    def _is_there(self) -> bool:
        note = read_note(self.final)
        return note is not None and note.save_id == self._save_id

    def start(self, after_commit: Callable[[], None]) -> None:
        """Write in a thread that the interpreter waits for at its end.

        Process 0 also commits there as soon as all have written.
        """
        self._thread = threading.Thread(target=self._run, args=(after_commit,), name=f"checkpoint-{self.step}")
        self._thread.start()

    def _run(self, after_commit: Callable[[], None]) -> None:
        with self.keeping_errors():
            if self.error is None:
                self.write()
                if self.process_id == 0 and self._all_written():
                    self.commit()
                    after_commit()
        if not threading.main_thread().is_alive() and not self._called.is_set():
            if self.error:
                LOG.error("step %d was not saved, and the program ends: %s", self.step, self.error)
            elif self.process_id == 0 and not self.committed:
                LOG.error("step %d was not saved: the program ends, and not all processes have written", self.step)

    def _all_written(self) -> bool:
        """Wait for the reports of all processes, until `join` is called; return whether all are there."""
        wanted = {self._report(process_id).name for process_id in range(self.num_processes)}
        pause, deadline = 0.01, None
        while not wanted.issubset(os.listdir(self.partial)):  # noqa: PTH208 - names are enough
            if deadline is None and not threading.main_thread().is_alive():
                deadline = time.monotonic() + GRACE_SECONDS
            if self._called.wait(pause) or (deadline and time.monotonic() > deadline):
                return False
            pause = min(2 * pause, 1.0)
        return True

    def join(self) -> None:
        """Wait until this process has written."""
        self._called.set()
        if self._thread:
            self._thread.join()

    def explained(self, kept: str) -> Exception:
        """Return the kept error with its likely cause.

        Args:
            kept: The checkpoints that are left, in words.
        """
        error = self.error
        if error is None:
            return CheckpointError(
                f"step {self.step} was not saved: another process failed, its own message says why"
                f"{self._others_at_work()}; {kept}"
            )
        if not isinstance(error, OSError):
            return error
        reason = error.strerror or str(error)
        where = f"{error.filename}: " if error.filename else ""
        hint = ""
        if error.errno in NO_SPACE:
            hint = f"; it needs {self.needed:,} bytes, {free_bytes(self.final.parent):,} bytes are free"
        elif error.errno in OTHERS_AT_WORK:
            hint = self._others_at_work() or (
                "; does another job, or a rank that believes to be alone, save to the same directory?"
            )
        explained = CheckpointError(
            f"step {self.step} was not saved in {self.final.parent}: {where}{reason}{hint}; {kept}"
        )
        explained.__cause__ = error
        return explained

    def _report(self, process_id: int) -> Path:
        return self.partial / f"part-{process_id:05d}.json"

    def _begun(self) -> str:
        """Return the name that process 0 has given to the save."""
        note = read_note(self.partial)
        if note is None:
            raise CheckpointError(
                f"step {self.step} was not saved: process 0 did not begin it, its own message says why"
                f"{self._others_at_work() or f'; or another job saves to {self.final.parent} as well'}"
            )
        return note.save_id

    def _others_at_work(self) -> str:
        """Name who else saves at the moment, or has saved since this save began, as an insertion in a sentence."""
        for _ in range(LOOKS):
            paths = [path for path in self.final.parent.glob("step-*") if path.name not in self._known]
            if writers := others([*paths, self.final], self.team):
                return f"; {', '.join(writers)} saves to the same directory"
        return ""

    def _check_space(self) -> None:
        # A file system that does not know its size says 0 blocks.
        status = os.statvfs(self.partial)
        if status.f_blocks and self.needed > free_bytes(self.partial):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.partial))


def checked_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the metadata, as JSON will return them.

    Raises:
        TypeError: They hold something that JSON cannot hold, or keys that are not text.
    """
    try:
        _check_keys(metadata, DEEPEST)
        copied: dict[str, Any] = json.loads(json.dumps(dict(metadata)))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"metadata: {error}; they are numbers, text, lists and mappings, as in "
            '{"epoch": 3, "loss": float(loss)}; arrays belong into the tensors'
        ) from None
    return copied


def _check_keys(value: Any, levels: int) -> None:
    if isinstance(value, (Mapping, list, tuple)) and not levels:
        raise TypeError(f"nested more than {DEEPEST} levels deep")
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is not text")
            _check_keys(item, levels - 1)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check_keys(item, levels - 1)
