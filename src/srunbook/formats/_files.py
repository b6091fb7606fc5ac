"""Files written whole or not at all, and fields that are checked before they are believed."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


class FormatError(ValueError):
    """A file or line does not have the form it should have; the message names the field."""


def write_whole(path: Path, text: str) -> bool:
    """Writes `text` to `path` by way of a temporary file and a rename, and only when it differs.

    Returns:
        Whether the file was written.
    """
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink()
        raise
    return True


def read_json(path: Path) -> Any:
    """Reads a JSON file.

    Raises:
        FormatError: The file is missing, or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FormatError(f"{path}: no such file") from None
    except ValueError as error:
        raise FormatError(f"{path}: not JSON: {error}") from None


def _fits(value: Any, kind: Any) -> bool:
    origin = get_origin(kind)
    if kind is Any:
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, option) for option in get_args(kind))
    if kind is NoneType:
        return value is None
    if origin in (list, tuple):
        return isinstance(value, list) and all(_fits(item, get_args(kind)[0]) for item in value)
    if origin in (dict, Mapping):
        values = get_args(kind)[1]
        return isinstance(value, dict) and all(isinstance(k, str) and _fits(v, values) for k, v in value.items())
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def build(kind: type[T], data: Any, where: str) -> T:
    """Builds a dataclass from parsed JSON and checks every field against its annotation.

    Raises:
        FormatError: A field is missing, unknown, or of another type.
    """
    if not isinstance(data, dict):
        raise FormatError(f"{where}: expected an object, found {type(data).__name__}")
    hints = get_type_hints(kind)
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    for name in data:
        if name not in known:
            raise FormatError(f"{where}: unknown field {name!r}; known are {', '.join(sorted(known))}")
    values = {}
    for name, field in known.items():
        if name not in data:
            if field.default is MISSING and field.default_factory is MISSING:
                raise FormatError(f"{where}: field {name!r} is missing")
            continue
        if not _fits(data[name], hints[name]):
            raise FormatError(f"{where}: field {name!r} should be {hints[name]}, found {data[name]!r}")
        values[name] = tuple(data[name]) if get_origin(hints[name]) is tuple else data[name]
    return kind(**values)
