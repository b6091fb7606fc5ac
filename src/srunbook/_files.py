"""Read regular files without waiting, and write files whole or not at all. Standard library only; for every room."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

BLOCK = 2**18
"""Bytes that are read at once."""


def read_blocks(path: Path) -> Iterator[bytes]:
    """Yield the content of a regular file in blocks.

    Raises:
        OSError: The file cannot be read, or is a folder, a pipe or a device.
    """
    if path.exists() and not path.is_file():  # a pipe would wait for somebody who writes
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    with path.open("rb") as stream:
        while block := stream.read(BLOCK):
            yield block


def write_whole(path: Path, text: str | bytes) -> bool:
    """Write `text` to `path` through a temporary file and a rename, and only when it differs.

    Missing folders are made. A pipe or a link in the file's place is replaced.

    Returns:
        Whether the file was written.

    Raises:
        OSError: The text could not be written; a file that was there is as it was.
    """
    content = text.encode("utf-8") if isinstance(text, str) else text
    if path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)  # a signal may come just after the rename
        raise
    return True
