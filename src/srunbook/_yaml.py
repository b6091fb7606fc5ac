"""Read a configuration file in YAML 1.2, with the line of every value.

`srunbook.generate` and `srunbook.cluster` make their specifications of what this reads.
"""

from __future__ import annotations

import io
import os
import reprlib
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode


class MalformedError(ValueError):
    """A configuration file cannot be read; the message is one line that names the place and what is expected."""


MAX_BYTES = 1 << 20
"""Size of a configuration file, at most."""

MAX_MESSAGE = 300
"""Characters that are told of a message of the parser."""

MAX_NUMBER = 32
"""Characters of a number, at most."""


_short = reprlib.Repr()
_short.maxstring = _short.maxother = 80
_short.maxlevel = 2


def shown(value: Any) -> str:
    """Show a value in a message: short and on one line."""
    return _short.repr(value)


@dataclass(frozen=True)
class Document:
    """What a configuration file says.

    Args:
        place: What messages call it.
        values: Its keys and values.
        lines: Line of each key and of each item of a list, by its path, as in `("env_vars", "NAME")`.
    """

    place: str
    values: Mapping[Any, Any]
    lines: Mapping[tuple[Any, ...], int] = field(default_factory=dict)


def origin_of(path: tuple[Any, ...], place: str, lines: Mapping[tuple[Any, ...], int]) -> str:
    """Return the place of a value with its line, or with that of the nearest key above it."""
    for end in range(len(path), 0, -1):
        if path[:end] in lines:
            return f"{place}:{lines[path[:end]]}"
    return place


def read_document(path: Path) -> Document:
    """Read a configuration file.

    Args:
        path: A file in YAML 1.2, in which `12:00:00` is a text.

    Returns:
        Its values, with the line of each key.

    Raises:
        MalformedError: The file cannot be read, is a pipe or a device, is larger than 1 MiB, or does not hold a
            mapping.
    """
    try:
        # Without O_NONBLOCK the system would wait here for somebody to write into a pipe.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
            regular = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
            data = stream.read(MAX_BYTES + 1) if regular else b""
    except OSError as error:
        raise MalformedError(f"{path}: {error.strerror}. Give a file, as in --config my_cluster.yaml") from None
    if not regular:
        raise MalformedError(f"{path}: not a regular file. Save the configuration, as in --config my_cluster.yaml")
    if len(data) > MAX_BYTES:
        raise MalformedError(f"{path}: larger than {MAX_BYTES} bytes, too large for a configuration file")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise MalformedError(
            f"{path}:{line}: byte {data[error.start]:#04x} is not UTF-8. Save the file as UTF-8"
        ) from None
    return parse_document(text, str(path))


def parse_document(text: str, place: str) -> Document:
    r"""Read the text of a configuration file.

    Args:
        text: YAML 1.2.
        place: What messages call it.

    Raises:
        MalformedError: It is not YAML, or not a mapping.

    >>> parse_document("nodes: 4\ntime_limit: 12:00:00\n", "a.yaml").values
    {'nodes': 4, 'time_limit': '12:00:00'}
    """
    try:
        yaml = YAML(typ="safe", pure=True)
        root = yaml.compose(io.StringIO(text))
        check(root, place, yaml.constructor)
        values = yaml.constructor.construct_document(root) if root else None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{place}:{mark.line + 1}" if mark else place
        problem = " ".join(filter(None, [error.context, error.problem]))
        raise MalformedError(f"{where}: {clipped(problem)}") from None
    except YAMLError as error:
        line = text.count("\n", 0, getattr(error, "position", 0)) + 1
        reason = getattr(error, "reason", None) or str(error).splitlines()[0]
        raise MalformedError(f"{place}:{line}: not YAML: {clipped(reason)}") from None
    except MalformedError:
        raise
    except RecursionError:
        raise MalformedError(f"{place}: lists and mappings lie too deep in each other") from None
    except (ValueError, TypeError) as error:
        raise MalformedError(f"{place}: cannot be read as YAML: {clipped(str(error))}") from None
    if values is None:
        return Document(place, {})
    if not isinstance(values, dict):
        raise MalformedError(
            f"{place}:1: found a {type(values).__name__}; a configuration is keys and values, as in nodes: 4"
        )
    return Document(place, values, lines(root))


def clipped(message: str) -> str:
    """Return a message of the parser, which may quote the whole file, short and on one line."""
    line = " ".join(message[:MAX_MESSAGE].split())
    return line if len(message) <= MAX_MESSAGE else f"{line} ..."


def check(root: Node | None, place: str, constructor: SafeConstructor) -> None:
    """Refuse keys that are not words, values not of their kind, and `<<`, which hides where a value is."""
    left = [root] if root else []
    seen: set[int] = set()
    while left:
        node = left.pop()
        if id(node) in seen:  # an alias
            continue
        seen.add(id(node))
        if isinstance(node, ScalarNode):
            check_scalar(node, place, constructor)
        elif isinstance(node, SequenceNode):
            left += node.value
        else:
            for key, value in node.value:
                where = f"{place}:{key.start_mark.line + 1}"
                if key.tag == "tag:yaml.org,2002:merge":
                    raise MalformedError(f"{where}: '<<' is not supported: write the keys out")
                if not isinstance(key, ScalarNode):
                    raise MalformedError(f"{where}: a key is a list or a mapping. Write a word, as in nodes: 4")
                left += [key, value]


def check_scalar(node: ScalarNode, place: str, constructor: SafeConstructor) -> None:
    """Refuse a value that is not of the kind that its form or its tag says, such as a day 99."""
    where = f"{place}:{node.start_mark.line + 1}: cannot be read as YAML"
    kind = str(node.tag).rpartition(":")[2]
    if kind == "int" and len(node.value) > MAX_NUMBER:
        raise MalformedError(f"{where}: a number of {len(node.value)} characters")
    try:
        constructor.construct_object(node)
    except (ValueError, TypeError, KeyError, OverflowError):
        raise MalformedError(
            f"{where}: {node.value[:40]!r} is not a valid {kind}. If it is a text, put it in quotes"
        ) from None


def lines(root: Node) -> dict[tuple[Any, ...], int]:
    """Return the line of each key and of each item, by its path."""
    found: dict[tuple[Any, ...], int] = {}
    left: list[tuple[tuple[Any, ...], Node]] = [((), root)]
    seen: set[int] = set()
    while left:
        path, node = left.pop()
        if id(node) in seen:  # an alias, which may stand for what it lies in
            continue
        seen.add(id(node))
        below: list[tuple[Any, Node, int]] = []
        if isinstance(node, MappingNode):
            below = [(key.value, value, key.start_mark.line) for key, value in node.value]
        elif isinstance(node, SequenceNode):
            below = [(place, item, item.start_mark.line) for place, item in enumerate(node.value)]
        for part, child, line in below:
            found[(*path, part)] = line + 1
            left.append(((*path, part), child))
    return found
