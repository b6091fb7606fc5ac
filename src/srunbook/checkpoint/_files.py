"""Write and read data files: safetensors, hashed with SHA-256 on the way."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import queue
import stat
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from srunbook.checkpoint import _manifest
from srunbook.checkpoint._arrays import DTYPES, Bits, Piece
from srunbook.checkpoint._entries import FileEntry, PieceEntry, TensorEntry
from srunbook.checkpoint._errors import DamagedError

CHUNK = 8 << 20
"""Bytes that are read, written and hashed at a time."""

MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
"""What opening a file says that is not there; the last where another node of a shared file system has removed it."""


class Hasher:
    """Compute a SHA-256 in a thread of its own, so that it costs time only where it is slower than the disk.

    Args:
        ahead: How many chunks may wait for it; 0 for any number.
    """

    def __init__(self, ahead: int = 0) -> None:
        self._sha256 = hashlib.sha256()
        self._chunks: queue.Queue[memoryview | None] = queue.Queue(ahead)
        self._thread = threading.Thread(target=self._run, name="checkpoint-sha256", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (chunk := self._chunks.get()) is not None:
            self._sha256.update(chunk)

    def update(self, chunk: memoryview) -> None:
        """Hash a chunk later; it must not change until `close`."""
        self._chunks.put(chunk)

    def close(self) -> str:
        """Wait for all chunks and return the digest, in hexadecimal."""
        self._chunks.put(None)
        self._thread.join()
        return self._sha256.hexdigest()


def byte_view(bits: Bits) -> memoryview:
    """View a contiguous array as bytes."""
    flat: Any = bits.reshape(-1).view(np.uint8)
    return memoryview(flat)


def header_of(pieces: Sequence[Piece]) -> bytes:
    """Make the header of a safetensors file: the length of its JSON in 8 bytes, then the JSON, padded to 8 bytes.

    Raises:
        ValueError: Two pieces would have the same name in the file.
    """
    table: dict[str, object] = {"__metadata__": {"format": "pt" if pieces[0].framework == "torch" else "np"}}
    offset = 0
    for piece in pieces:
        if (key := _key(piece)) in table:
            raise ValueError(f"two pieces of one process have the name {key!r}")
        end = offset + piece.bits.nbytes
        table[key] = {
            "dtype": DTYPES[piece.dtype][0],
            "shape": list(piece.bits.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _key(piece: Piece) -> str:
    if piece.bits.shape == tuple(piece.global_shape):
        return piece.name
    ranges = (f"{first}:{first + size}" for first, size in zip(piece.start, piece.bits.shape, strict=True))
    return f"{piece.name}[{','.join(ranges)}]"


def write_part(path: Path, header: bytes, pieces: Sequence[Piece]) -> tuple[int, str]:
    """Write a new safetensors file and wait until it is on the disk.

    Args:
        path: The file, which must not exist.
        header: Its header, as `header_of` makes it.
        pieces: Its content.

    Returns:
        Its size in bytes and its SHA-256.

    Raises:
        OSError: It could not be written.
    """
    hasher = Hasher()
    size = 0
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            for view in [memoryview(header), *(byte_view(piece.bits) for piece in pieces)]:
                for position in range(0, len(view), CHUNK):
                    chunk = view[position : position + CHUNK]
                    hasher.update(chunk)
                    write_all(handle, chunk)
                size += len(view)
            os.fsync(handle)
        finally:
            os.close(handle)
    finally:
        sha256 = hasher.close()
    return size, sha256


def write_all(handle: int, data: memoryview) -> None:
    """Write all of `data`, however often the system takes only a part of it."""
    while len(data):
        data = data[os.write(handle, data) :]


def write_small(path: Path, data: bytes) -> None:
    """Write a small file through a temporary one, fsync and rename.

    Unlike `srunbook._files.write_whole`, this makes no missing folder (a folder that another job has removed must not
    come back), reads nothing that lies at `path` (it could be a pipe), writes the bytes that were sealed, and goes
    through the calls of `os` at which the tests kill a save.

    Raises:
        OSError: It could not be written. The temporary file may be left; the next save clears it away.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        write_all(handle, memoryview(data))
        os.fsync(handle)
    finally:
        os.close(handle)
    os.rename(temporary, path)  # noqa: PTH104 - one place to count all renames


def fsync_directory(path: Path) -> None:
    """Wait until the names in a directory are on the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class WantedBox:
    """Assemble the wanted box of a tensor from pieces.

    Args:
        start: Where the box begins in the tensor.
        bits: Memory for it.
    """

    def __init__(self, start: tuple[int, ...], bits: Bits) -> None:
        self.start = start
        self.bits = bits


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


def read_small(path: Path) -> bytes:
    """Read a sealed file whole.

    Raises:
        DamagedError: It is missing, is not a plain file, or is larger than such a file can be.
        OSError: It could not be read.
    """
    handle, size = open_file(path)
    with os.fdopen(handle, "rb") as stream:
        if size > _manifest.LARGEST:
            raise DamagedError(f"{path} has {size:,} bytes; at most {_manifest.LARGEST:,} are read")
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
