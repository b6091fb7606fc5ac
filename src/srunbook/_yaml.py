"""Read a configuration file in YAML 1.2, with the line of every value.

`srunbook.generate` and `srunbook.cluster` make their specifications of what this reads.
"""

from __future__ import annotations

import io
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode


class MalformedError(ValueError):
    """A configuration file cannot be read; the message is one line that names the place and what is expected."""


MAX_MESSAGE = 300
"""Characters of a message of the parser, which may quote the whole file, at most."""

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 80
_short.maxlevel = 2


def shown(value: Any) -> str:
    """Show a value in a message: short and on one line."""
    return _short.repr(value)


@dataclass(frozen=True)
class Layer:
    """Values from one place, such as a configuration file.

    Args:
        place: Its name in messages, such as `profile medium` or the path of a file.
        values: Its keys and values; None removes what an earlier layer has set.
        lines: For a file, the line of each key and of each list item, by its path, as in `("env_vars", "NAME")`.
    """

    place: str
    values: Mapping[Any, Any]
    lines: Mapping[tuple[Any, ...], int] = field(default_factory=dict)

    def origin(self, *path: Any) -> str:
        """Return the place of a value with its line, or with the line of the nearest key above it."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.lines:
                return f"{self.place}:{self.lines[path[:end]]}"
        return self.place


def read_document(path: Path) -> Layer:
    """Read a configuration file in YAML 1.2, in which `12:00:00` is a text.

    Raises:
        MalformedError: The file cannot be read, or does not hold a mapping.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise MalformedError(f"{path}: {error.strerror}. Give a file, as in --config my_cluster.yaml") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = f"byte {data[error.start]:#04x} is not UTF-8. Save the file as UTF-8"
        raise MalformedError(f"{path}:{line}: {problem}") from None
    yaml = YAML(typ="safe", pure=True)
    try:
        root = yaml.compose(io.StringIO(text))
        values = yaml.constructor.construct_document(root) if root else {}
        lines = dict(_lines(root)) if root else {}
    except (YAMLError, RecursionError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise MalformedError(f"{path}{_problem(error)}"[:MAX_MESSAGE]) from None
    if not isinstance(values, dict):
        raise MalformedError(
            f"{path}:1: found a {type(values).__name__}; a configuration is keys and values, as in nodes: 4"
        )
    return Layer(str(path), values, lines)


def _problem(error: Exception) -> str:
    """Say in one line what the parser did not like, and where in the text."""
    if isinstance(error, MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        why = " ".join(" ".join(filter(None, [error.context, error.problem])).split())
        return f":{mark.line + 1}: {why}" if mark else f": {why}"
    return f": cannot be read as YAML: {' '.join(str(error).split())}"


def _lines(node: Node, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], int]]:
    """Yield the line of each key and of each item, with its path in the document."""
    below: Iterable[tuple[Any, Node, Node]] = ()
    if isinstance(node, MappingNode):
        below = [(key.value, value, key) for key, value in node.value]
    elif isinstance(node, SequenceNode):
        below = [(number, item, item) for number, item in enumerate(node.value)]
    for part, child, marked in below:
        yield (*place, part), marked.start_mark.line + 1
        yield from _lines(child, (*place, part))
