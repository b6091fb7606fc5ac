"""Read files that may be damaged: nothing but plain files, no more than was written, and checked on the way."""

from __future__ import annotations

import errno
import math
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from srunbook.checkpoint import _manifest
from srunbook.checkpoint._arrays import Bits
from srunbook.checkpoint._entries import FileEntry, PieceEntry, TensorEntry
from srunbook.checkpoint._errors import DamagedError
from srunbook.checkpoint._files import CHUNK, Hasher, byte_view

MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
"""What opening a file says that is not there; the last where another node of a shared file system has removed it."""


@dataclass(frozen=True)
class WantedBox:
    """A wanted box of a tensor, to be assembled from pieces.

    Args:
        start: Where the box begins in the tensor.
        bits: Memory for it.
    """

    start: tuple[int, ...]
    bits: Bits


def overlap(
    piece: PieceEntry, start: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[tuple[slice, ...], tuple[slice, ...]] | None:
    """Return the intersection of a piece and a box, as slices of the piece and of the box; None when it is empty."""
    of_piece, of_box = [], []
    for p, n, b, m in zip(piece.start, piece.shape, start, shape, strict=True):
        first, last = max(p, b), min(p + n, b + m)
        if first >= last:
            return None
        of_piece.append(slice(first - p, last - p))
        of_box.append(slice(first - b, last - b))
    return tuple(of_piece), tuple(of_box)


def open_file(path: Path) -> tuple[int, int]:
    """Open a plain file for reading: no link, no pipe.

    Returns:
        Its descriptor and its size in bytes.

    Raises:
        DamagedError: It is missing, or is not a plain file.
        OSError: It could not be opened.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in MISSING:
            raise DamagedError(f"{path} is missing") from None
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise DamagedError(f"{path} is not a file") from None
        raise
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise DamagedError(f"{path} is not a file")
    return handle, status.st_size


def read_small(path: Path, largest: int = _manifest.LARGEST) -> bytes:
    """Read a small file whole.

    Args:
        path: The file.
        largest: Bytes that it may have.

    Raises:
        DamagedError: It is missing, is not a plain file, or has more bytes.
        OSError: It could not be read.
    """
    handle, size = open_file(path)
    with os.fdopen(handle, "rb") as stream:
        if size > largest:
            raise DamagedError(f"{path} has {size:,} bytes; at most {largest:,} are read")
        return stream.read(size)


def check_size(path: Path, entry: FileEntry) -> None:
    """Check a file's size without reading it, so that memory is only taken for what there is.

    Raises:
        DamagedError: It is missing, or has not the size that was written.
        OSError: It could not be looked at.
    """
    try:
        found = os.lstat(path).st_size
    except OSError as error:
        if error.errno in MISSING:
            raise DamagedError(f"{path} is missing") from None
        raise
    _compare_sizes(path, found, entry)


def _compare_sizes(path: Path, found: int, entry: FileEntry) -> None:
    if found != entry.size:
        raise DamagedError(f"{path} has {found:,} bytes; {entry.size:,} were written")


def read_part(
    path: Path, entry: FileEntry, tensors: Mapping[str, TensorEntry], targets: Mapping[str, WantedBox]
) -> None:
    """Read a file once, fill the targets from it, and check its SHA-256.

    The file's own header is not interpreted: the manifest says where everything lies.

    Args:
        path: The file.
        entry: Its entry in the manifest.
        tensors: The tensors of the checkpoint.
        targets: The wanted boxes by name of the tensor. After an error they hold garbage.

    Raises:
        DamagedError: The file is missing or is not what was written.
        OSError: It could not be read.
    """
    handle, found = open_file(path)
    hasher = Hasher(ahead=8)  # what is read only to be checked must not pile up
    try:
        _compare_sizes(path, found, entry)
        sizes = [math.prod(piece.shape) * tensors[piece.tensor].itemsize for piece in entry.pieces]
        _read_scratch(handle, entry.size - sum(sizes), hasher, path)
        for piece, size in zip(entry.pieces, sizes, strict=True):
            _read_piece(handle, piece, size, targets.get(piece.tensor), hasher, path)
    finally:
        os.close(handle)
        sha256 = hasher.close()
    if not _manifest.agrees(sha256, entry.sha256):
        raise DamagedError(f"{path} has the SHA-256 {sha256[:12]}...; {entry.sha256[:12]}... was written")


def _read_piece(
    handle: int, piece: PieceEntry, size: int, target: WantedBox | None, hasher: Hasher, path: Path
) -> None:
    common = overlap(piece, target.start, target.bits.shape) if target else None
    if not size or target is None or common is None:
        _read_scratch(handle, size, hasher, path)
        return
    of_piece, of_box = common
    everywhere: Any = (*of_box, ...)  # the dots make it a view also where there are no axes
    place = target.bits[everywhere]
    if place.shape == piece.shape and place.flags.c_contiguous:
        _read_into(handle, byte_view(place), hasher, path)
    else:
        whole = np.empty(piece.shape, target.bits.dtype)
        _read_into(handle, byte_view(whole), hasher, path)
        place[...] = whole[of_piece]


def _read_scratch(handle: int, size: int, hasher: Hasher, path: Path) -> None:
    for position in range(0, size, CHUNK):
        _read_into(handle, memoryview(bytearray(min(CHUNK, size - position))), hasher, path)


def _read_into(handle: int, view: memoryview, hasher: Hasher, path: Path) -> None:
    for position in range(0, len(view), CHUNK):
        chunk = view[position : position + CHUNK]
        filled = 0
        while filled < len(chunk):
            count = os.readv(handle, [chunk[filled:]])
            if not count:
                raise DamagedError(f"{path} ends too early")
            filled += count
        hasher.update(chunk)
