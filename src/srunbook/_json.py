"""Read JSON files into dataclasses. pydantic checks every field; it is imported by the first call."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from srunbook._files import read_whole

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

STRICT: Final[dict[str, Any]] = {"extra": "forbid", "strict": True}
"""The `__pydantic_config__` of a dataclass that is read: no unknown field, and no conversion from another type."""


def read_json(path: Path, kind: type[T], error: type[ValueError]) -> T:
    """Read a JSON file into a dataclass that has `STRICT` as its `__pydantic_config__`.

    Args:
        path: The file.
        kind: The dataclass. What its `__post_init__` raises as a `ValueError` becomes part of the message.
        error: What to raise.

    Raises:
        error: The file is missing or cannot be read, is not JSON, or does not have the form of the dataclass. The
            message is one line that names the file and the first field that is wrong.
    """
    try:
        text = read_whole(path)
    except FileNotFoundError:
        raise error(f"{path}: no such file") from None
    except OSError as problem:
        raise error(f"{path}: {problem.strerror}") from None
    return parse_json(text, str(path), kind, error)


def parse_json(text: str | bytes, name: str, kind: type[T], error: type[ValueError]) -> T:
    """Make a dataclass of JSON, as `read_json` does; the message of an error begins with the name given."""
    from pydantic import ValidationError

    try:
        return cast("T", _adapter(kind).validate_json(text))  # type: ignore[arg-type] # types are hashable
    except ValidationError as invalid:
        raise error(f"{name}: {_complaint(kind, invalid.errors(include_url=False))}") from None


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """Return what checks a dataclass; making it takes longer than checking a small file."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _complaint(kind: type[Any], problems: Sequence[Any]) -> str:
    """Say in one line what is wrong with the first field that is."""
    first = problems[0]
    place = first["loc"]
    wanted = first["msg"].removeprefix("Input should be ")
    if place[-1:] and place[-1] in ("str", "int", "float"):  # of a union, pydantic names what each member wants
        place = place[:-1]
        options = [problem["msg"] for problem in problems if problem["loc"][:-1] == place]
        wanted = " or ".join(message.removeprefix("Input should be ") for message in options)
    where = ".".join(map(str, place))
    if first["type"] == "json_invalid":
        return f"not JSON: {first['ctx']['error']}"
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    if first["type"] == "missing":
        return f"field {where!r} is missing"
    if first["type"] == "unexpected_keyword_argument":
        known = f"; known are {', '.join(sorted(field.name for field in fields(kind)))}" if len(place) == 1 else ""
        return f"unknown field {where!r}{known}"
    value = reprlib.repr(first["input"])
    return f"field {where!r} should be {wanted}, found {value}" if where else f"expected {wanted}, found {value}"
