"""The cache folder, which holds roots, images and running clusters: where it is, who may write there, its locks."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from srunbook.cluster._errors import ClusterError, SpecificationError

ROOT_BYTES = 3 * 2**30
"""Room for one root: the finished one and what its making needs."""

RUN_BYTES = 512 * 2**20
"""Room for a cluster."""


def cache_folder() -> Path:
    """Return the cache folder: `srunbook` in the user's cache folder, whether it is there or not.

    Root runs what lies in it, so nobody else may write there.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    if not base.is_absolute():
        raise SpecificationError(
            f"XDG_CACHE_HOME is {str(base)!r}, a relative path: give an absolute one, as in /var/cache"
        )
    folder = base.resolve() / "srunbook"
    if re.search(r"[\s,:\\]", str(folder)):
        raise SpecificationError(
            f"cache folder {folder}: its path must be free of spaces, commas, colons and backslashes; "
            "choose another one with XDG_CACHE_HOME"
        )
    try:
        status = folder.stat()
    except FileNotFoundError:
        return folder
    except NotADirectoryError:
        raise SpecificationError(f"{base} is not a folder: choose another one with XDG_CACHE_HOME") from None
    why = ""
    if status.st_uid != os.geteuid():
        why = f"belongs to user {status.st_uid}"
    elif status.st_mode & 0o022:
        why = f"is writable by other users (mode {stat.S_IMODE(status.st_mode):04o})"
    if why:
        raise ClusterError(
            f"{folder} {why}, but root runs what lies there, so nobody else may write there. "
            "Remove it, or choose another cache folder with XDG_CACHE_HOME"
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


def check_room(*, making_root: bool = False) -> None:
    """Check that the cache folder has room for a cluster."""
    folder = make_folder(cache_folder())
    needed = ROOT_BYTES if making_root else RUN_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ClusterError(
            f"{folder} has {free / 2**30:.1f} GiB free, and {needed / 2**30:.1f} GiB are needed: "
            "make room, or choose another folder with XDG_CACHE_HOME"
        )


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
