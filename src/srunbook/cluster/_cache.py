"""The cache folder: where it is, and that nobody else could have written what lies in it.

Root runs what lies there, and ends and removes what is on record there.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from srunbook.cluster._errors import ClusterError, SpecificationError, TrustError

FULL = (errno.ENOSPC, errno.EDQUOT)


def cache_folder() -> Path:
    """Return the folder that holds roots, images and running clusters: `srunbook` in the user's cache folder.

    Raises:
        SpecificationError: Its path is relative, or has a character that a mount option cannot carry.
    """
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
        if not base.is_absolute():
            raise SpecificationError(
                f"XDG_CACHE_HOME is {str(base)!r}, a relative path: give an absolute one, as in /var/cache"
            )
        folder = base.resolve() / "srunbook"
    except (OSError, RuntimeError) as error:  # no home, or links in a circle
        raise SpecificationError(f"no cache folder: {error}. Name one, as in XDG_CACHE_HOME=/var/cache") from None
    if re.search(r"[\s,:\\]", str(folder)):
        raise SpecificationError(
            f"cache folder {folder}: its path must be free of spaces, commas, colons and backslashes; "
            "choose another one with XDG_CACHE_HOME"
        )
    return folder


def trusted(path: Path) -> Path:
    """Return a path at or below the cache folder once it is certain that nobody else could have written it.

    The check begins at `/`: whoever can rename a folder can replace all that lies below it. Where the path ends
    early, there is nothing to distrust.

    Raises:
        SpecificationError: The cache folder would lie below something that is not a folder.
        TrustError: Another user owns or may change the path or a folder above it, or it leads through a link.
    """
    cache = cache_folder()
    for place in [*reversed(path.parents), path]:
        try:
            found = place.lstat()
        except FileNotFoundError:
            return path
        except OSError as error:
            raise ClusterError(f"{place} cannot be examined: {error.strerror}") from None
        if not (place == path or stat.S_ISDIR(found.st_mode) or stat.S_ISLNK(found.st_mode)):
            raise SpecificationError(f"{place} is not a folder: choose another cache folder with XDG_CACHE_HOME")
        inside = place.is_relative_to(cache)
        why = _distrust(found, inside=inside)
        if why:
            remove = f"Remove {place}" if inside else f"{place} is above it"
            raise TrustError(
                f"{place} {why}, but root runs what lies in the cache folder, so nobody else may write there. "
                f"{remove}, or choose another cache folder with XDG_CACHE_HOME"
            )
    return path


def _distrust(found: os.stat_result, *, inside: bool) -> str | None:
    """Return why a place is not to be trusted; outside the cache folder, root and the sticky bit are."""
    shared = not inside and stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    if stat.S_ISLNK(found.st_mode):
        return "is a link"
    if found.st_uid not in ({os.geteuid()} if inside else {os.geteuid(), 0}):
        return f"belongs to user {found.st_uid}"
    if found.st_mode & 0o022 and not shared:
        return f"is writable by other users (mode {stat.S_IMODE(found.st_mode):04o})"
    return None


def make_folder(path: Path, mode: int = 0o700) -> Path:
    """Make a folder of the cache, and those above it for its user alone.

    Args:
        path: The folder.
        mode: Of the last one, where it is made.

    Raises:
        OSError: The disk is full.
        ClusterError: It cannot be made for another reason.
        TrustError: Another user could have made it.
    """
    trusted(path)
    for place in [*reversed(path.parents), path]:
        try:
            place.mkdir(mode=mode if place == path else 0o700)
        except FileExistsError:
            continue
        except OSError as error:
            if error.errno in FULL:
                raise
            raise ClusterError(
                f"{place} cannot be made: {error.strerror}. Choose another cache folder with XDG_CACHE_HOME"
            ) from None
    return trusted(path)


def clear_folder(path: Path) -> None:
    """Remove all that lies in a folder, and leave the folder."""
    for child in path.iterdir() if path.exists() else ():
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        else:
            child.unlink()


@contextmanager
def held(folder: Path, *, wait: bool) -> Iterator[None]:
    """Hold a folder of the cache, which is made where it is missing, and removed at the end where it is empty.

    The folder is the lock, so no file is left of it. What was removed while this process waited is no lock.

    Args:
        folder: The folder; its holder removes what lies in it with `clear_folder`.
        wait: Whether to wait for another holder.

    Raises:
        BlockingIOError: Another process holds it.
        TrustError: Another user could have made it.
    """
    while True:
        make_folder(folder)
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if not _is_at(handle, folder):
                continue
            try:
                yield
            finally:
                with suppress(OSError):  # it is not empty
                    folder.rmdir()
            return
        finally:
            os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False
