"""What a manifest lists: tensors, the data files, and the pieces of tensors in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from srunbook.checkpoint._arrays import DTYPES


@dataclass(frozen=True)
class TensorEntry:
    """The manifest's entry of a whole tensor.

    Args:
        dtype: Type of its elements.
        shape: Its global shape.
        framework: What it comes back as: `numpy` or `torch`.
    """

    dtype: str
    shape: tuple[int, ...]
    framework: str

    @property
    def itemsize(self) -> int:
        """Size of an element in bytes."""
        return DTYPES[self.dtype][1]


@dataclass(frozen=True)
class PieceEntry:
    """The manifest's entry of a box of a tensor in a file.

    Args:
        tensor: Name of the tensor.
        start: Where the box begins.
        shape: Shape of the box.
    """

    tensor: str
    start: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class FileEntry:
    """The manifest's entry of a data file.

    Args:
        name: Its name in the checkpoint's directory.
        size: Its size in bytes.
        sha256: SHA-256 of its content.
        pieces: What it holds, in the order in which it lies there, at the end of the file.
    """

    name: str
    size: int
    sha256: str
    pieces: tuple[PieceEntry, ...]


@dataclass(frozen=True)
class Part:
    """The report that one process leaves for process 0 about what it wrote.

    Args:
        save_id: The save it belongs to.
        tensors: The tensors of which it wrote pieces.
        file: The file it wrote; None where it had nothing to write.
    """

    save_id: str
    tensors: dict[str, TensorEntry]
    file: FileEntry | None


@dataclass(frozen=True)
class Manifest:
    """All that a checkpoint consists of.

    Args:
        step: The step.
        save_id: Random name of the save that wrote it.
        metadata: What the caller added.
        tensors: The tensors by name.
        files: The data files.
    """

    step: int
    save_id: str
    metadata: dict[str, Any]
    tensors: dict[str, TensorEntry]
    files: tuple[FileEntry, ...]
