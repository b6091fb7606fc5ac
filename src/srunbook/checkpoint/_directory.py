"""The directory of the checkpoints: which steps there are, and what is cleared away before and after a save."""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from srunbook.checkpoint._errors import CheckpointError

LOG = logging.getLogger("srunbook.checkpoint")
STEP = "step-{:010d}"
LEFT_OVER = r"step-[0-9]{10,}(\.[0-9a-f]{16})?\.(partial|removing)"
NOTICE = r"\.{1,2}(meet|restore)[-.].*"
NOTICE_SECONDS = 3600.0
"""Age from which on nobody can be reading what processes have left for each other in the directory."""


def steps_in(directory: Path) -> list[int]:
    """List the steps that have a checkpoint, ascending; their contents are not looked at.

    Raises:
        CheckpointError: The directory cannot be read.
    """
    try:
        names = os.listdir(directory)  # noqa: PTH208 - names are enough
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"{directory} cannot be read: {error.strerror}") from error
    found = [int(name[5:]) for name in names if re.fullmatch(r"step-[0-9]{10,}", name)]
    return sorted(step for step in found if STEP.format(step) in names)


def state_of(path: Path) -> tuple[int, ...] | None:
    """Return what changes when a directory is replaced, renamed or emptied; None if it is gone."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


def left_over(directory: Path) -> list[Path]:
    """List unfinished saves and removals, and what processes that are long gone left for each other.

    An unfinished save is taken for that of a job that was killed. A job that still runs notices when it is removed.

    Raises:
        OSError: The directory cannot be read.
    """
    return [
        path
        for path in directory.iterdir()
        if re.fullmatch(LEFT_OVER, path.name) or (re.fullmatch(NOTICE, path.name) and _is_old(path))
    ]


def make_room(directory: Path, keep: int, unneeded: Iterable[Path], damaged: Mapping[int, object]) -> None:
    """Clear away what is in the way of the next save, so that the space of `keep` + 1 checkpoints is enough.

    Checkpoints beyond `keep` remain when a job is killed between a save and the removal. Damaged ones are set aside,
    and those that were set aside before are removed if there is no room for another checkpoint.

    Args:
        directory: The directory.
        keep: How many checkpoints to keep.
        unneeded: What `left_over` has listed.
        damaged: Steps that were found damaged, each with the `state_of` its directory then.

    Raises:
        OSError: The directory cannot be read, or a damaged checkpoint cannot be renamed.
    """
    for path in unneeded:
        _try_to_remove(path)
    for step in sorted(damaged):
        path = directory / STEP.format(step)
        if state_of(path) == damaged[step]:
            _set_aside(path)
    remove_old(directory, keep)
    aside = sorted(path for path in directory.iterdir() if re.fullmatch(r"damaged-step-[0-9]+(\.[0-9]+)?", path.name))
    if aside and free_bytes(directory) < _size_of_newest(directory):
        for path in aside:
            LOG.warning("%s is removed, to make room", path)
            _try_to_remove(path)


def remove_old(directory: Path, keep: int) -> None:
    """Remove checkpoints but for the newest; what cannot be removed is named in a warning."""
    try:
        old = steps_in(directory)[:-keep]
    except CheckpointError as error:
        LOG.warning("old checkpoints could not be removed: %s", error)
        return
    for step in old:
        _try_to_remove(directory / STEP.format(step))


def remove(path: Path) -> None:
    """Remove the directory of a checkpoint or a save, first from sight, so that nobody takes the rest for a whole.

    Raises:
        OSError: It could not be removed. What is left of it has a name that `make_room` knows.
    """
    step = re.match(r"step-[0-9]+", path.name)
    aside = path.with_name(f"{step[0]}.{secrets.token_hex(8)}.removing") if step else path
    with contextlib.suppress(FileNotFoundError):  # another job was faster
        if step:
            os.rename(path, aside)  # noqa: PTH104 - one place to count all renames
        delete(aside)


def delete(path: Path) -> None:
    """Delete a directory and what is in it, or a file, or a link but not what it points to.

    Raises:
        OSError: It could not be deleted.
    """
    if path.is_symlink() or not path.is_dir():
        os.unlink(path)  # noqa: PTH108 - as the renames
        return
    for last in (False, False, True):
        try:
            shutil.rmtree(path)
        except OSError as error:  # another process may be deleting it, or be writing there still
            if not path.exists():
                return
            if last or error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise


def free_bytes(directory: Path) -> int:
    """Return how many bytes this user may write."""
    status = os.statvfs(directory)
    blocks = status.f_bfree if os.geteuid() == 0 else status.f_bavail
    return blocks * status.f_frsize


def _try_to_remove(path: Path) -> None:
    try:
        remove(path)
    except OSError as error:
        LOG.warning("%s could not be removed: %s", path, error)


def _set_aside(path: Path) -> None:
    names = itertools.chain(
        [f"damaged-{path.name}"], (f"damaged-{path.name}.{number}" for number in itertools.count(1))
    )
    aside = next(path.with_name(name) for name in names if not os.path.lexists(path.with_name(name)))
    os.rename(path, aside)  # noqa: PTH104 - one place to count all renames
    LOG.warning("%s is damaged; it was set aside as %s and may be deleted", path, aside.name)


def _size_of_newest(directory: Path) -> int:
    steps = steps_in(directory)
    newest = directory / STEP.format(steps[-1]) if steps else directory
    with contextlib.suppress(OSError):
        return sum(path.lstat().st_size for path in newest.iterdir())
    return 0


def _is_old(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return abs(time.time() - path.lstat().st_mtime) > NOTICE_SECONDS
    return False
