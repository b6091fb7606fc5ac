"""Unpacking what a user of the cluster has packed: nothing of it is trusted."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, cast

from srunbook.cluster._errors import SpecificationError

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def unpack(stream: IO[bytes], folder: int) -> str:
    """Unpack an archive of one file or folder.

    This process is root, and the archive may hold any names. So each file is made in a folder that was opened through
    the one above it, and never through a link, whatever the archive has put there before.

    Args:
        stream: The archive.
        folder: An open, empty folder that belongs to this process's user alone.

    Returns:
        The name of what was unpacked.

    Raises:
        SpecificationError: It holds something else than files, folders and links that lead down.
        EOFError: It is no archive, or not a whole one.
        OSError: It cannot be written.
    """
    top = ""
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for entry in archive:
                parts = [part for part in entry.name.split("/") if part not in ("", ".")]
                top = top or "".join(parts[:1])
                if ".." in parts or parts[:1] != [top]:
                    raise SpecificationError(f"the archive holds {entry.name!a}, which is no part of {top!a}")
                with _opened(folder, parts[:-1]) as above:
                    _unpack_entry(archive, entry, parts, above)
    except (tarfile.TarError, ValueError) as error:
        raise EOFError(f"what came is not a whole archive: {error}") from None
    return top


@contextmanager
def _opened(folder: int, parts: list[str]) -> Iterator[int]:
    """Open a folder below another one, step by step."""
    handle = os.dup(folder)
    try:
        for part in parts:
            below = os.open(part, FOLDER, dir_fd=handle)
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


def _unpack_entry(archive: tarfile.TarFile, entry: tarfile.TarInfo, parts: list[str], above: int) -> None:
    name, shown = parts[-1], ascii("/".join(parts))
    if entry.isdir():
        os.mkdir(name, dir_fd=above)
    elif entry.issym():
        if entry.linkname.startswith("/") or ".." in entry.linkname.split("/"):
            raise SpecificationError(
                f"{shown} is a link to {entry.linkname!a}, which may lead out of what is copied: "
                "copy what it leads to by its own name, or remove the link"
            )
        os.symlink(entry.linkname, name, dir_fd=above)
    elif entry.isreg():
        mode = 0o777 if entry.mode & stat.S_IXUSR else 0o666
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=above)
        with os.fdopen(handle, "wb") as file:
            shutil.copyfileobj(cast("IO[bytes]", archive.extractfile(entry)), file)
            file.flush()
            os.utime(file.fileno(), (entry.mtime, entry.mtime))
    else:
        raise SpecificationError(f"{shown} is a pipe, a device or the like: move it away, or copy the rest")
