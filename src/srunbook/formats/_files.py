"""Files written whole or not at all, and fields that are checked before they are believed."""

from __future__ import annotations

import json
import math
import os
import re
import reprlib
import uuid
from collections.abc import Mapping
from dataclasses import MISSING, fields
from datetime import date
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
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)  # less what the umask takes
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
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
        return parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FormatError(f"{path}: no such file") from None
    except ValueError as error:
        raise FormatError(f"{path}: not JSON: {error}") from None


def parse_json(text: str, *, rest: bool = False) -> Any:
    """Parses JSON.

    Args:
        text: The JSON, from its first character on.
        rest: Whether other text may follow it.

    Raises:
        ValueError: It is none.
    """
    try:
        return json.JSONDecoder().raw_decode(text)[0] if rest else json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def check_date(what: str, text: str) -> None:
    """Refuses a text that is no ISO date.

    Raises:
        FormatError: It has another form, or there is no such day.
    """
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        try:
            date.fromisoformat(text)
        except ValueError:
            pass
        else:
            return
    raise FormatError(f"{what}: 'date' is {text!r}; it reads like 2026-11-20")


def check_sha256(what: str, name: str, text: str) -> None:
    """Refuses a text that is no SHA-256.

    Raises:
        FormatError: It is not 64 lower-case hexadecimal digits.
    """
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise FormatError(f"{what}: {name!r} is {text!r}; it is 64 hexadecimal digits, as hexdigest() gives them")


def is_finite(value: float) -> bool:
    """Whether a number can be drawn: neither infinite, nor undefined, nor too large for a float."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def check_finite(what: str, name: str, value: Any) -> None:
    """Refuses numbers that JSON does not have, wherever they are in a value.

    Raises:
        FormatError: One is infinite or undefined.
    """
    values = [value]
    for item in values:  # grows as it goes
        if isinstance(item, Mapping):
            values += item.values()
        elif isinstance(item, (list, tuple)):
            values += item
        elif isinstance(item, (int, float)) and not is_finite(item):
            raise FormatError(f"{what}: {name!r} holds {reprlib.repr(item)}, which is not finite")


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
        FormatError: A field is missing, unknown, of another type, or refused by the dataclass itself.
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
            raise FormatError(f"{where}: field {name!r} should be {hints[name]}, found {reprlib.repr(data[name])}")
        values[name] = tuple(data[name]) if get_origin(hints[name]) is tuple else data[name]
    try:
        return kind(**values)
    except FormatError as error:
        raise FormatError(f"{where}: {error}") from None
