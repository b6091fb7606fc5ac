"""Read JSON files into dataclasses. pydantic checks every field; it is imported by the first call."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

STRICT: Final[dict[str, Any]] = {"extra": "forbid", "strict": True}
"""The `__pydantic_config__` of a dataclass that is read: no unknown field, and no conversion from another type."""


def read_json(path: Path, kind: type[T], error: type[ValueError]) -> T:
    """Read a JSON file into a dataclass that has `STRICT` as its `__pydantic_config__`.

    Raises:
        error: The file cannot be read, is not JSON, or does not have the form of the dataclass. The message is one
            line that names the file and the first field that is wrong.
    """
    try:
        text = path.read_bytes()
    except OSError as problem:
        raise error(f"{path}: {problem.strerror}") from None
    return parse_json(text, str(path), kind, error)


def parse_json(text: str | bytes, name: str, kind: type[T], error: type[ValueError]) -> T:
    """Make a dataclass of JSON, as `read_json` does; the message of an error begins with the name given."""
    from pydantic import ValidationError

    try:
        return cast("T", _adapter(kind).validate_json(text))  # type: ignore[arg-type] # types are hashable
    except ValidationError as invalid:
        first = invalid.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise error(f"{name}: {f'field {place!r}: ' if place else ''}{first['msg']}") from None


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """Return what checks a dataclass; making it takes longer than checking a small file."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
