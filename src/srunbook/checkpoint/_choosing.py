"""Choose the step to restore: the newest that is whole, and the same on all processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from srunbook.checkpoint import _manifest
from srunbook.checkpoint._directory import LOG, STEP, state_of, steps_in
from srunbook.checkpoint._errors import CheckpointError, DamagedError
from srunbook.checkpoint._files import write_small
from srunbook.checkpoint._reading import read_small
from srunbook.checkpoint._restoring import Restored
from srunbook.checkpoint._writers import LARGEST_NOTE

CHOICE = ".restore-{}.json"
ATTEMPTS = 10
"""How often to begin anew when another job removes the checkpoint that is being read."""


class Chooser:
    """Choose which step to restore.

    Args:
        directory: The directory of the checkpoints.
        read: Function that reads a step; with `check_all=True` it checks all its files.
        damaged: The steps that are passed over are added here, each with the `state_of` its directory.
    """

    def __init__(
        self, directory: Path, read: Callable[..., Restored], damaged: dict[int, tuple[int, ...] | None]
    ) -> None:
        self.directory = directory
        self.read = read
        self.damaged = damaged

    def alone(self, *, check_all: bool = False) -> Restored | None:
        """Read the newest step that is whole; None if there is none.

        Raises:
            CheckpointError: A step is of another model, or cannot be read, or steps are removed faster than read.
        """
        for _ in range(ATTEMPTS):
            steps = steps_in(self.directory)
            for step in reversed(steps):
                folder = self.directory / STEP.format(step)
                before = state_of(folder)
                try:
                    return self.read(step, check_all=check_all)
                except DamagedError as error:
                    if state_of(folder) != before or not os.path.lexists(folder):
                        break  # not damaged, but removed by a job that saves: there are newer ones
                    self.damaged[step] = before
                    LOG.warning("step %d is damaged and is passed over: %s", step, error)
            else:
                if steps:
                    LOG.warning("none of the %d checkpoints in %s is whole", len(steps), self.directory)
                return None
        raise CheckpointError(
            f"another job removes checkpoints from {self.directory} faster than they can be read; it should keep more"
        )

    def together(self, team: str | None, process_id: int, barrier: Callable[[], object]) -> Restored | None:
        """Read the step that process 0 chooses; all processes call this.

        Process 0 writes down what it chose, so that the others need not check files that they do not need. Where that
        is impossible, each process checks everything, and chooses for itself. They come to the same result unless the
        directory changes. A process notices if it changes: it looks before any has begun and after all have ended.

        Args:
            team: Name of these processes; None if they could not agree on one, since the directory is read-only.
            process_id: Number of this process.
            barrier: A function that returns when all processes have called it; it is called twice.

        Raises:
            CheckpointError: The checkpoint is of another model, or cannot be read by all processes.
        """
        path = self.directory / CHOICE.format(team)
        before = self._listed()
        written = False
        restored: Restored | None = None
        error: Exception | None = None
        if process_id == 0:
            try:
                restored = self.alone(check_all=True)
                choice: dict[str, Any] = {"step": restored.step if restored else None}
            except Exception as problem:  # raised below, after the barriers
                error, choice = problem, {"refused": str(problem)}
            written = team is not None and _write(path, choice)
        barrier()
        if process_id != 0:
            try:
                found = _choice(path) if team else None
                written = found is not None
                restored = self._chosen(found) if found is not None else self.alone(check_all=True)
            except Exception as problem:  # raised below, after the barrier
                error = problem
        barrier()
        if process_id == 0 and written:
            with contextlib.suppress(OSError):
                path.unlink()
        if error is None and not written and self._listed() != before:
            raise CheckpointError(
                f"checkpoints were added to {self.directory} or removed while it was read, and the processes could not "
                "write there which of them they read; try again"
            )
        if isinstance(error, DamagedError):
            raise CheckpointError(f"process {process_id} cannot restore what process 0 chose: {error}") from error
        if error:
            raise error
        return restored

    def _listed(self) -> list[int] | None:
        with contextlib.suppress(CheckpointError):
            return steps_in(self.directory)
        return None

    def _chosen(self, choice: dict[str, Any]) -> Restored | None:
        if "refused" in choice:
            raise CheckpointError(f"process 0 cannot restore: {choice['refused']}")
        return None if choice["step"] is None else self.read(choice["step"])


def _write(path: Path, choice: dict[str, Any]) -> bool:
    try:
        write_small(path, _manifest.seal(choice))
    except OSError:
        return False
    return True


def _choice(path: Path) -> dict[str, Any] | None:
    try:
        return _manifest.unseal(read_small(path, LARGEST_NOTE), str(path))
    except (CheckpointError, OSError):
        return None
