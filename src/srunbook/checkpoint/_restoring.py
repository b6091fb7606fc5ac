"""Read tensors from a checkpoint's directory, and check them on the way."""

from __future__ import annotations

import errno
import math
import mmap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from srunbook.checkpoint._arrays import Bits, Index, Shard, bits_type, box, dtype_name, from_bits
from srunbook.checkpoint._directory import STEP
from srunbook.checkpoint._entries import Manifest, PieceEntry, TensorEntry
from srunbook.checkpoint._errors import CheckpointError, DamagedError, plain
from srunbook.checkpoint._manifest import NAME, load_manifest
from srunbook.checkpoint._reading import WantedBox, check_size, overlap, read_part, read_small

LARGE = 4 << 20
"""Bytes from which on NumPy asks for huge pages."""


@dataclass(frozen=True)
class Restored:
    """A checkpoint that was read and found whole.

    Args:
        step: Its step.
        tensors: Its tensors by name. What was saved from torch is a torch tensor in host memory, everything else a
            NumPy array.
        metadata: Its metadata, as JSON gives them back: tuples are lists.
    """

    step: int
    tensors: dict[str, Any]
    metadata: dict[str, Any]


def manifest_of(folder: Path, step: int) -> Manifest:
    """Read the manifest of a step.

    Raises:
        DamagedError: It is missing, or is not the manifest of this step.
        OSError: It could not be read.
    """
    path = folder / NAME
    manifest = load_manifest(read_small(path), str(path))
    if manifest.step != step:
        raise DamagedError(f"{path} belongs to step {manifest.step}, not to step {step}")
    return manifest


def read_step(
    directory: Path,
    step: int,
    *,
    expect: Mapping[str, Any] | None,
    part: Callable[[str, tuple[int, ...]], Index | None] | None,
    framework: str | None,
    check_all: bool = False,
) -> Restored:
    """Read the checkpoint of a step.

    Args:
        directory: The directory of the checkpoints.
        step: The step.
        expect: The tensors that it has to hold, see `check_expected`; None if any will do.
        part: See `read_tensors`, as the following.
        framework: The framework.
        check_all: Whether to check all files.

    Raises:
        CheckpointError: It is of another model, or cannot be read.
        DamagedError: It is not what was saved.
    """
    folder = directory / STEP.format(step)
    try:
        manifest = manifest_of(folder, step)
        if expect is not None:
            check_expected(manifest.tensors, expect, str(folder))
        tensors = read_tensors(folder, manifest, part, framework, check_all=check_all)
    except OSError as error:
        if error.errno in (errno.EIO, errno.ESTALE):
            raise DamagedError(f"{error.filename or folder}: {error.strerror}") from error
        raise CheckpointError(f"step {step} cannot be read: {error}") from error
    return Restored(step, tensors, manifest.metadata)


def read_tensors(
    folder: Path,
    manifest: Manifest,
    part: Callable[[str, tuple[int, ...]], Index | None] | None,
    framework: str | None,
    *,
    check_all: bool,
) -> dict[str, Any]:
    """Read the tensors of a checkpoint, whole or in part.

    Args:
        folder: The checkpoint's directory.
        manifest: Its manifest.
        part: Function that returns the wanted box of a tensor, given its name and global shape; None for the whole.
        framework: The framework of the tensors, `numpy` or `torch`; None for that they were saved from.
        check_all: Whether to read and check also the files from which nothing is wanted.

    Raises:
        DamagedError: A file is not what was written.
        OSError: A file could not be read.
    """
    boxes = {
        name: box((part(name, entry.shape) if part else None) or (), entry.shape)
        for name, entry in manifest.tensors.items()
    }
    files = [file for file in manifest.files if check_all or any(_wanted(piece, boxes) for piece in file.pieces)]
    for file in files:
        check_size(folder / file.name, file)
    targets = {
        name: WantedBox(start, empty(shape, bits_type(manifest.tensors[name].dtype)))
        for name, (start, shape) in boxes.items()
    }
    for file in files:
        read_part(folder / file.name, file, manifest.tensors, targets)
    return {
        name: from_bits(target.bits, manifest.tensors[name].dtype, framework or manifest.tensors[name].framework)
        for name, target in targets.items()
    }


def empty(shape: tuple[int, ...], kind: np.dtype[Any]) -> Bits:
    """Allocate an array for what is read.

    `numpy.empty` asks for huge pages, and the first touch of each may have to wait until the system has made one.
    Restoring 1 GiB took 1.1 s of CPU time with plain pages, and from 0.8 to 3.1 s with huge ones. Large arrays
    therefore use plain pages.
    """
    size = math.prod(shape) * kind.itemsize
    if size < LARGE:
        return np.empty(shape, kind)
    memory: Any = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(memory, kind).reshape(shape)


def _wanted(piece: PieceEntry, boxes: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]) -> bool:
    # A piece without elements is in nobody's way, but its file is checked like the others.
    return 0 in piece.shape or overlap(piece, *boxes[piece.tensor]) is not None


def check_expected(tensors: Mapping[str, TensorEntry], expect: Mapping[str, Any], where: str) -> None:
    """Check that a checkpoint holds the tensors of a model.

    Args:
        tensors: The tensors that it holds.
        expect: The tensors that it should hold: by name a shape, or anything that has a shape and a type.
        where: The checkpoint, for the message.

    Raises:
        CheckpointError: Names, shapes or types differ.
    """
    problems = [
        *_named("it lacks", (plain(name) for name in expect if name not in tensors)),
        *_named("it has besides", (plain(name) for name in tensors if name not in expect)),
    ]
    different = []
    for name, value in expect.items():
        if name in tensors:
            shape, dtype = _form(value)
            entry = tensors[name]
            if entry.shape != shape or dtype not in (None, entry.dtype):
                different.append(
                    f"{plain(name)} is {entry.dtype} {entry.shape}, expected {dtype or entry.dtype} {shape}"
                )
    problems += _named("it differs in", different)
    if problems:
        raise CheckpointError(
            f"{where} is whole, but not of this model: {'; '.join(problems)}. "
            "Use another directory, or the model that was saved here."
        )


def _form(value: Any) -> tuple[tuple[int, ...], str | None]:
    if isinstance(value, Shard):
        return tuple(value.global_shape), dtype_name(value.array.dtype)
    if hasattr(value, "dtype"):
        return tuple(value.shape), dtype_name(value.dtype)
    return tuple(value), None


def _named(problem: str, names: Iterable[str]) -> list[str]:
    found = list(names)
    more = f" and {len(found) - 4} more" if len(found) > 4 else ""
    return [f"{problem} {', '.join(found[:4])}{more}"] if found else []
