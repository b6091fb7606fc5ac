"""Read regular files without waiting, and write files whole or not at all. Standard library only; for every room."""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

BLOCK = 2**18
"""Bytes that are read at once."""

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: Path) -> FileIO:
    """Open a regular file to read it, without waiting for somebody who writes.

    Raises:
        OSError: The file cannot be read, or is a folder, a pipe, a socket or a device.
    """
    _require_regular(path, path.stat().st_mode)  # to open a device may already do something
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _require_regular(path, os.fstat(handle).st_mode)
        return FileIO(handle)
    except BaseException:
        os.close(handle)
        raise


def _require_regular(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = KINDS.get(stat.S_IFMT(mode), "something else")
        raise OSError(errno.EINVAL, f"{kind}, not a regular file", str(path))


def read_blocks(path: Path, size: int = BLOCK) -> Iterator[bytes]:
    """Yield the content of a regular file in blocks, up to where it ended when it was opened.

    A file that grows is read no further, and one that claims to be empty, as those in /proc do, is not read at all.

    Args:
        path: The file.
        size: Bytes in a block; the last one may have fewer.

    Raises:
        OSError: The file cannot be read, or is not a regular one.
    """
    with open_regular(path) as stream:
        left = os.fstat(stream.fileno()).st_size
        while left > 0 and (block := stream.read(min(size, left))):
            left -= len(block)
            yield block


def read_whole(path: Path, most: int | None = None) -> bytes:
    """Return the content of a regular file.

    Args:
        path: The file.
        most: Bytes beyond which it is not read; by default any size is.

    Raises:
        OSError: As for `read_blocks`, or the file is larger than `most`.
    """
    size = path.stat().st_size
    if most is not None and size > most:
        raise OSError(errno.EFBIG, f"{size} bytes, expected at most {most}", str(path))
    return b"".join(read_blocks(path))


def write_whole(path: Path, text: str | bytes, like: os.stat_result | None = None) -> bool:
    """Write `text` to `path` through a temporary file and a rename, and only when it differs.

    Args:
        path: The file; missing folders are made. A pipe or a link in its place is replaced.
        text: Its new content.
        like: Whose mode bits, owner and group it gets; by default those of a new file.

    Returns:
        Whether the file was written.

    Raises:
        OSError: The text could not be written; a file that was there is as it was.
    """
    content = text.encode("utf-8") if isinstance(text, str) else text
    if _holds(path, content):
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)  # less what the umask takes
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            if like is not None:
                os.fchown(stream.fileno(), like.st_uid, like.st_gid)
                os.fchmod(stream.fileno(), stat.S_IMODE(like.st_mode))
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)  # a signal may come just after the rename
        raise
    return True


def _holds(path: Path, content: bytes) -> bool:
    """Tell whether a file holds this content already. What cannot be read holds something else."""
    try:
        return path.stat().st_size == len(content) and read_whole(path) == content
    except OSError:
        return False
