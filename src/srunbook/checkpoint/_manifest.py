"""Write and read the manifest: what a checkpoint consists of, sealed with its own SHA-256."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from srunbook.checkpoint._arrays import DTYPES, FRAMEWORKS, Piece
from srunbook.checkpoint._errors import CheckpointError, DamagedError

FORMAT = "srunbook checkpoint"
VERSION = 1
NAME = "manifest.json"
PART = "part-{:05d}.safetensors"


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


def seal(content: Mapping[str, Any]) -> bytes:
    """Return a JSON text, UTF-8, that holds the content and its SHA-256."""
    return json.dumps({"sha256": _digest(content), "content": content}, indent=1).encode() + b"\n"


def unseal(data: bytes, what: str) -> dict[str, Any]:
    """Return the content of a sealed text.

    Args:
        data: The text.
        what: Its name, for the message.

    Raises:
        DamagedError: The content is not what was sealed.
    """
    try:
        sealed = json.loads(data)
        content = sealed["content"]
        whole = isinstance(content, dict) and agrees(_digest(content), sealed["sha256"])
    except (ValueError, KeyError, TypeError, RecursionError):
        whole = False
    if not whole:
        raise DamagedError(f"{what} is not what was written: its SHA-256 does not agree")
    assert isinstance(content, dict)  # noqa: S101 - for the type checker
    return content


def agrees(found: str, written: str) -> bool:
    """Return whether a checksum is the one that was written. All checks go through here."""
    return found == written


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def dump_part(part: Part) -> bytes:
    """Return a part as a sealed text."""
    return seal(asdict(part))


def load_part(data: bytes, what: str) -> Part:
    """Read a part from its sealed text.

    Raises:
        DamagedError: It is not what was written.
    """
    content = unseal(data, what)
    with _Form(what):
        file = content["file"]
        tensors = {name: _tensor(entry) for name, entry in content["tensors"].items()}
        return Part(content["save_id"], tensors, None if file is None else _file(file))


def dump_manifest(manifest: Manifest) -> bytes:
    """Return a manifest as a sealed text."""
    return seal({"format": FORMAT, "version": VERSION, **asdict(manifest)})


def load_manifest(data: bytes, what: str) -> Manifest:
    """Read a manifest from its sealed text, and check that it describes a checkpoint.

    Raises:
        DamagedError: It is not what was written, or does not describe a checkpoint.
    """
    content = unseal(data, what)
    with _Form(what):
        if content["format"] != FORMAT or content["version"] != VERSION:
            raise ValueError(f"is of {content['format']!r} version {content['version']}, not {FORMAT!r} {VERSION}")
        manifest = Manifest(
            step=_natural(content["step"]),
            save_id=content["save_id"],
            metadata=dict(content["metadata"]),
            tensors={name: _tensor(entry) for name, entry in content["tensors"].items()},
            files=tuple(_file(entry) for entry in content["files"]),
        )
        check_tiling(manifest.tensors, manifest.files)
    return manifest


class _Form:
    """Turn what a wrong form raises into a `DamagedError` that names the file."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (KeyError, TypeError, ValueError, AttributeError)):
            raise DamagedError(f"{self.what} does not describe a checkpoint: {error}") from error


def _natural(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"expected a whole number from 0, found {value!r}")
    return value


def _tensor(entry: Mapping[str, Any]) -> TensorEntry:
    tensor = TensorEntry(entry["dtype"], tuple(_natural(size) for size in entry["shape"]), entry["framework"])
    if tensor.dtype not in DTYPES or tensor.framework not in FRAMEWORKS:
        raise ValueError(f"unknown type of tensor: {entry}")
    return tensor


def _file(entry: Mapping[str, Any]) -> FileEntry:
    if not re.fullmatch(r"part-\d{5,}\.safetensors", entry["name"]):
        raise ValueError(f"expected a name like {PART.format(0)}, found {entry['name']!r}")
    pieces = [
        PieceEntry(
            piece["tensor"],
            tuple(_natural(first) for first in piece["start"]),
            tuple(_natural(size) for size in piece["shape"]),
        )
        for piece in entry["pieces"]
    ]
    return FileEntry(entry["name"], _natural(entry["size"]), str(entry["sha256"]), tuple(pieces))


def check_tiling(tensors: Mapping[str, TensorEntry], files: Iterable[FileEntry]) -> None:
    """Check that the pieces in the files hold every element of each tensor exactly once.

    Raises:
        ValueError: A tensor has a hole or an overlap, a piece lies outside, or a file is too small for its pieces.
    """
    found: dict[str, list[PieceEntry]] = {name: [] for name in tensors}
    for file in files:
        needed = 8
        for piece in file.pieces:
            if piece.tensor not in tensors:
                raise ValueError(f"{file.name} holds a piece of {piece.tensor!r}, which is not listed")
            found[piece.tensor].append(piece)
            needed += math.prod(piece.shape) * tensors[piece.tensor].itemsize
        if file.size < needed:
            raise ValueError(f"{file.name} has {file.size} bytes, but its pieces need {needed}")
    for name, pieces in found.items():
        _check_boxes(name, tensors[name].shape, pieces)


def _check_boxes(name: str, shape: tuple[int, ...], pieces: list[PieceEntry]) -> None:
    for piece in pieces:
        ends = [first + size for first, size in zip(piece.start, piece.shape, strict=True)]
        if len(ends) != len(shape) or any(end > size for end, size in zip(ends, shape, strict=True)):
            raise ValueError(f"a piece of {name!r} at {piece.start} of shape {piece.shape} leaves {shape}")
    filled = sum(math.prod(piece.shape) for piece in pieces)
    wanted = math.prod(shape)
    if filled != wanted or not pieces:
        raise ValueError(f"the pieces of {name!r} have {filled} of {wanted} elements of {shape}")
    open_boxes: list[PieceEntry] = []
    for piece in sorted((piece for piece in pieces if math.prod(piece.shape)), key=lambda piece: piece.start):
        if shape:
            open_boxes = [other for other in open_boxes if other.start[0] + other.shape[0] > piece.start[0]]
        if any(_overlap(piece, other) for other in open_boxes):
            raise ValueError(f"two pieces of {name!r} hold the same elements, at {piece.start} of {shape}")
        open_boxes.append(piece)


def _overlap(one: PieceEntry, other: PieceEntry) -> bool:
    return all(
        max(a, b) < min(a + m, b + n) for a, m, b, n in zip(one.start, one.shape, other.start, other.shape, strict=True)
    )


def merge(step: int, save_id: str, metadata: Mapping[str, Any], parts: list[Part]) -> Manifest:
    """Merge what all processes wrote into one manifest.

    Raises:
        CheckpointError: The parts do not fit together.
    """
    tensors: dict[str, TensorEntry] = {}
    for process_id, part in enumerate(parts):
        if part.save_id != save_id:
            raise CheckpointError(
                f"process {process_id} wrote for another save of step {step}: is a second job saving?"
            )
        for name, entry in part.tensors.items():
            if tensors.setdefault(name, entry) != entry:
                raise CheckpointError(
                    f"tensor {name!r} differs between processes: {tensors[name]} and, on process {process_id}, {entry}"
                )
    files = tuple(part.file for part in parts if part.file)
    try:
        check_tiling(tensors, files)
    except ValueError as error:
        raise CheckpointError(f"the shards of step {step} do not fit together: {error}") from None
    return Manifest(step, save_id, dict(metadata), tensors, files)


def entries(pieces: Iterable[Piece]) -> tuple[dict[str, TensorEntry], tuple[PieceEntry, ...]]:
    """Return the entries of the tensors, by name, and of the pieces that one process writes."""
    tensors, boxes = {}, []
    for piece in pieces:
        tensors[piece.name] = TensorEntry(piece.dtype, tuple(piece.global_shape), piece.framework)
        boxes.append(PieceEntry(piece.name, tuple(piece.start), tuple(piece.bits.shape)))
    return tensors, tuple(boxes)
