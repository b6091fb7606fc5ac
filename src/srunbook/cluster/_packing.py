"""A stream of files for a user to unpack: links are packed as links, and nothing behind one is read."""

from __future__ import annotations

import contextlib
import os
import stat
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from srunbook._files import KINDS
from srunbook.cluster._errors import SpecificationError
from srunbook.cluster._pipes import connected


@dataclass(frozen=True)
class Item:
    """Something to pack.

    Args:
        path: The file or folder.
        name: What it is called in the archive; of a folder, empty where only what lies in it is packed.
        named: Whether the caller gave this very path, so that a link is what it leads to.
    """

    path: Path
    name: str
    named: bool = True


def feed(line: Sequence[str], items: Iterable[Item], *, last: str = "") -> tuple[int, bytes, str]:
    """Run a command on an archive of files and folders; return its status, what it printed, what it complained of.

    Raises:
        SpecificationError: As for `pack`.
        OSError: As for `pack`.
    """
    with connected(line) as command:
        with contextlib.suppress(BrokenPipeError), command.stdin as stream:
            pack(items, stream, last=last)  # a command that ends early says itself why
        output = command.stdout.read()
        return command.process.wait(), output, command.complaint()


def pack(items: Iterable[Item], stream: IO[bytes], *, last: str = "") -> None:
    """Write an archive of files and folders.

    The caller is root, and a folder may be another user's, who may put a link in the place of anything in it at any
    time. So every file and every folder in it is opened through the folder that holds it, and never through a link.

    Args:
        items: What to pack.
        stream: Where to.
        last: Name of an empty file at the end, by which the one who unpacks sees that all has come.

    Raises:
        SpecificationError: One of them is a pipe, a socket or a device.
        OSError: One of them cannot be read, or changed while it was read.
    """
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        for item in items:
            if item.named and item.path.is_dir():
                handle = os.open(item.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    _pack_folder(archive, handle, item.path, item.name)
                finally:
                    os.close(handle)
            else:
                path = item.path.resolve() if item.named else item.path
                handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    _pack_entry(archive, handle, path, item.name)
                finally:
                    os.close(handle)
        if last:
            archive.addfile(tarfile.TarInfo(last))


def _pack_folder(archive: tarfile.TarFile, handle: int, path: Path, name: str) -> None:
    """Pack a folder that is open, and all that lies in it."""
    if name:
        archive.addfile(_entry(name, os.fstat(handle), tarfile.DIRTYPE))
    for child in sorted(os.listdir(handle)):
        _pack_entry(archive, handle, path / child, f"{name}/{child}" if name else child)


def _pack_entry(archive: tarfile.TarFile, folder: int, path: Path, name: str) -> None:
    """Pack what a folder that is open holds under the last part of a path."""
    status = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        link = _entry(name, status, tarfile.SYMTYPE)
        link.linkname = os.readlink(path.name, dir_fd=folder)
        archive.addfile(link)
        return
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        kind = KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise SpecificationError(f"{path} is {kind}: only files, folders and links come along; give others")
    handle = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        status = os.fstat(handle)  # another may have taken its place
        if stat.S_ISDIR(status.st_mode):
            _pack_folder(archive, handle, path, name)
        else:
            with os.fdopen(handle, "rb", closefd=False) as stream:
                archive.addfile(_entry(name, status, tarfile.REGTYPE), stream)
    finally:
        os.close(handle)


def _entry(name: str, status: os.stat_result, kind: bytes) -> tarfile.TarInfo:
    """Return the head of an entry; its owner is whoever unpacks it."""
    entry = tarfile.TarInfo(name)
    entry.type = kind
    entry.size = status.st_size if kind == tarfile.REGTYPE else 0
    entry.mode = 0o755 if kind == tarfile.DIRTYPE or status.st_mode & 0o100 else 0o644
    entry.mtime = status.st_mtime
    return entry
