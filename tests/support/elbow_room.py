"""Tests that start many processes run while no other worker of the same test run has a test."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def elbow_room(folder: Path, *, alone: bool) -> Iterator[None]:
    """Wait until this test may run: beside others, or alone.

    Args:
        folder: One that all workers of this test run share.
        alone: Whether nothing else may run meanwhile.
    """
    with (folder / "door").open("w") as door, (folder / "room").open("w") as room:
        fcntl.flock(door, fcntl.LOCK_EX)  # who waits to be alone keeps the door shut, so that nobody overtakes
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield
