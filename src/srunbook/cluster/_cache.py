"""The cache folder, which holds roots, images and running clusters: where it is, who may write there, its locks."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from srunbook.cluster._errors import ClusterError

ROOT_BYTES = 3 * 2**30
"""Room for one root: the finished one and what its making needs."""

RUN_BYTES = 512 * 2**20
"""Room for a cluster."""


def cache_folder() -> Path:
    """Return the cache folder: `srunbook` in the user's cache folder, whether it is there or not.

    Root runs what lies in it, so nobody else may write there.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().resolve() / "srunbook"
    if folder.is_dir() and (folder.stat().st_uid != os.geteuid() or folder.stat().st_mode & 0o022):
        raise ClusterError(
            f"{folder} belongs to another user, or others may write there, but root runs what lies there: "
            "remove it, or choose another cache folder with XDG_CACHE_HOME"
        )
    return folder


def make_folder(path: Path) -> Path:
    """Make a folder in the cache folder, and that, too; nobody but root may write there."""
    for place in (cache_folder(), path):
        place.mkdir(0o755, parents=True, exist_ok=True)
    return path


@contextmanager
def held(name: str, *, wait: bool) -> Iterator[None]:
    """Hold a lock of the cache folder.

    Args:
        name: Its name.
        wait: Whether to wait for another holder.

    Raises:
        BlockingIOError: Another process holds it.
    """
    with (make_folder(cache_folder() / "locks") / name).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield


@contextmanager
def reported() -> Iterator[None]:
    """Turn what the machine refuses into a sentence."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise ClusterError(f"this machine refuses something that a cluster needs: {error}") from error
        raise ClusterError(
            f"{error.filename or cache_folder()}: no space is left. A cluster needs {RUN_BYTES / 2**30:.1f} GiB, the "
            f"making of a root {ROOT_BYTES / 2**30:.1f} GiB: make room, or choose another folder with XDG_CACHE_HOME"
        ) from error
