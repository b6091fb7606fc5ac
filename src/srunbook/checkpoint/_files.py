"""Write files: safetensors, hashed with SHA-256 on the way, and small ones whole."""

from __future__ import annotations

import hashlib
import json
import os
import queue
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from srunbook.checkpoint._arrays import DTYPES, Bits, Piece

CHUNK = 8 << 20
"""Bytes that are read, written and hashed at a time."""


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
