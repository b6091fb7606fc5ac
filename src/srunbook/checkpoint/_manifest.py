"""Write and read the manifest: what a checkpoint consists of, sealed with its own SHA-256."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from srunbook.checkpoint._arrays import DTYPES, FRAMEWORKS, Piece, check_shape
from srunbook.checkpoint._entries import FileEntry, Manifest, Part, PieceEntry, TensorEntry
from srunbook.checkpoint._errors import CheckpointError, DamagedError, short
from srunbook.checkpoint._tiling import check_tiling

FORMAT = "srunbook checkpoint"
VERSION = 1
NAME = "manifest.json"
PART = "part-{:05d}.safetensors"
LARGEST = 256 << 20
"""Bytes that a sealed text may have, enough for some two million pieces. What is larger is not read."""


def seal(content: Mapping[str, Any]) -> bytes:
    """Return a JSON text, UTF-8, that holds the content and its SHA-256.

    Raises:
        CheckpointError: It would be larger than what `unseal` is given to read.
    """
    text = json.dumps({"sha256": _digest(content), "content": content}, separators=(",", ":")).encode() + b"\n"
    if len(text) > LARGEST:
        raise CheckpointError(
            f"the names, pieces and metadata take {len(text):,} bytes as JSON, at most {LARGEST:,} can be read back; "
            "store long lists as tensors"
        )
    return text


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
        tensors = {name: _tensor(entry) for name, entry in _mapping(content["tensors"]).items()}
        return Part(content["save_id"], tensors, None if file is None else _file(file))


def dump_manifest(manifest: Manifest) -> bytes:
    """Return a manifest as a sealed text."""
    return seal({"format": FORMAT, "version": VERSION, **asdict(manifest)})


def load_manifest(data: bytes, what: str) -> Manifest:
    """Read a manifest from its sealed text, and check that it describes a checkpoint.

    Raises:
        CheckpointError: A newer version of srunbook wrote it, which this one cannot read.
        DamagedError: It is not what was written, or does not describe a checkpoint.
    """
    content = unseal(data, what)
    version = content.get("version")
    if content.get("format") == FORMAT and isinstance(version, int) and version > VERSION:
        raise CheckpointError(
            f"{what} has version {version} of the format, and this srunbook reads version {VERSION}. Nothing was "
            "changed. Install the newer srunbook that wrote it, or move this step away to resume from an older one"
        )
    with _Form(what):
        if content["format"] != FORMAT or content["version"] != VERSION:
            form = f"{short(content['format'])} version {short(content['version'])}"
            raise ValueError(f"is of {form}, not {FORMAT!r} {VERSION}")
        manifest = Manifest(
            step=_natural(content["step"]),
            save_id=content["save_id"],
            metadata=_mapping(content["metadata"]),
            tensors={name: _tensor(entry) for name, entry in _mapping(content["tensors"]).items()},
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
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= sys.maxsize:
        raise ValueError(f"expected a whole number from 0 to {sys.maxsize}, found {short(value)}")
    return value


def _naturals(values: Any) -> tuple[int, ...]:
    return tuple(_natural(value) for value in values)


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"expected a mapping, found {short(value)}")
    return value


def _tensor(entry: Mapping[str, Any]) -> TensorEntry:
    tensor = TensorEntry(entry["dtype"], _naturals(entry["shape"]), entry["framework"])
    if tensor.dtype not in DTYPES or tensor.framework not in FRAMEWORKS:
        raise ValueError(f"unknown type of tensor: {short(entry)}")
    check_shape(tensor.shape, tensor.dtype)
    return tensor


def _file(entry: Mapping[str, Any]) -> FileEntry:
    if not re.fullmatch(r"part-[0-9]{5,}\.safetensors", entry["name"]):
        raise ValueError(f"expected a name like {PART.format(0)}, found {short(entry['name'])}")
    pieces = [
        PieceEntry(piece["tensor"], _naturals(piece["start"]), _naturals(piece["shape"])) for piece in entry["pieces"]
    ]
    return FileEntry(entry["name"], _natural(entry["size"]), str(entry["sha256"]), tuple(pieces))


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
