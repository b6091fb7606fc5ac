"""Read a configuration file in YAML 1.2, and the options `--set`, with the place of every value."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from srunbook.generate._errors import JobError
from srunbook.generate._layers import Layer, known, problem_with_key
from srunbook.generate._limits import refuse_excess
from srunbook.generate._schema import kinds

MAX_BYTES = 1 << 20
"""Size of a configuration file, at most."""

MAX_MESSAGE = 300
"""Characters that are told of a message of the parser."""

MAX_NUMBER = 32
"""Characters of a number, at most."""


def read_config(path: Path) -> Layer:
    """Read a configuration file.

    Args:
        path: A file in YAML 1.2, in which `12:00:00` is a text.

    Returns:
        Its values, with the line of each key.

    Raises:
        JobError: The file cannot be read, is a pipe or a device, is larger than 1 MiB, has more than 10,000 keys and
            values, or does not hold a mapping.
    """
    try:
        # Without O_NONBLOCK the system would wait here for somebody to write into a pipe.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
            regular = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
            data = stream.read(MAX_BYTES + 1) if regular else b""
    except OSError as error:
        raise JobError([f"{path}: {error.strerror}. Give a file, as in --config my_cluster.yaml"]) from None
    if not regular:
        raise JobError([f"{path}: not a regular file. Save the configuration, as in --config my_cluster.yaml"])
    if len(data) > MAX_BYTES:
        raise JobError([f"{path}: larger than {MAX_BYTES} bytes, too large for a configuration file"])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise JobError([f"{path}:{line}: byte {data[error.start]:#04x} is not UTF-8. Save the file as UTF-8"]) from None
    return parse_config(text, str(path))


def parse_config(text: str, place: str) -> Layer:
    r"""Read the text of a configuration file.

    Args:
        text: YAML 1.2.
        place: What messages call it.

    Raises:
        JobError: It is not YAML, too much of it, or not a mapping.

    >>> parse_config("nodes: 4\ntime_limit: 12:00:00\n", "a.yaml").values
    {'nodes': 4, 'time_limit': '12:00:00'}
    """
    try:
        refuse_excess(text, place)
        yaml = YAML(typ="safe", pure=True)
        root = yaml.compose(io.StringIO(text))
        check(root, place, yaml.constructor)
        values = yaml.constructor.construct_document(root) if root else None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{place}:{mark.line + 1}" if mark else place
        problem = " ".join(filter(None, [error.context, error.problem]))
        raise JobError([f"{where}: {clipped(problem)}"]) from None
    except YAMLError as error:
        line = text.count("\n", 0, getattr(error, "position", 0)) + 1
        reason = getattr(error, "reason", None) or str(error).splitlines()[0]
        raise JobError([f"{place}:{line}: not YAML: {clipped(reason)}"]) from None
    except JobError:
        raise
    except (ValueError, TypeError) as error:
        raise JobError([f"{place}: cannot be read as YAML: {clipped(str(error))}"]) from None
    if values is None:
        return Layer(place, {})
    if not isinstance(values, dict):
        raise JobError(
            [f"{place}:1: found a {type(values).__name__}; a configuration is keys and values, as in nodes: 4"]
        )
    return Layer(place, values, lines(root))


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
                    raise JobError([f"{where}: '<<' is not supported: write the keys out"])
                if not isinstance(key, ScalarNode):
                    raise JobError([f"{where}: a key is a list or a mapping. Write a word, as in nodes: 4"])
                left += [key, value]


def check_scalar(node: ScalarNode, place: str, constructor: SafeConstructor) -> None:
    """Refuse a value that is not of the kind that its form or its tag says, such as a day 99."""
    where = f"{place}:{node.start_mark.line + 1}: cannot be read as YAML"
    kind = str(node.tag).rpartition(":")[2]
    if kind == "int" and len(node.value) > MAX_NUMBER:
        raise JobError([f"{where}: a number of {len(node.value)} characters"])
    try:
        constructor.construct_object(node)
    except (ValueError, TypeError, KeyError, OverflowError):
        raise JobError(
            [f"{where}: {node.value[:40]!r} is not a valid {kind}. If it is a text, put it in quotes"]
        ) from None


def lines(root: Node) -> dict[tuple[Any, ...], int]:
    """Return the line of each key, and of what is below it."""
    found: dict[tuple[Any, ...], int] = {}
    for key, value in root.value:
        found[(key.value,)] = key.start_mark.line + 1
        if isinstance(value, MappingNode):
            found.update({(key.value, name.value): name.start_mark.line + 1 for name, _ in value.value})
        elif isinstance(value, SequenceNode):
            found.update({(key.value, place): item.start_mark.line + 1 for place, item in enumerate(value.value)})
    return found


def settings(options: Iterable[str]) -> list[Layer]:
    """Read options `--set KEY=VALUE`.

    A field that takes a number or true and false gets one; a list is written with commas; one environment variable is
    `env_vars.NAME=VALUE`; an empty value takes back what a profile, a cluster or a file says.

    Args:
        options: What follows `--set`, each time it is given.

    Raises:
        JobError: One has no `=`, or names no field.

    >>> [layer.values for layer in settings(["nodes=4", "env_vars.A=b=c", "partition="])]
    [{'nodes': 4}, {'env_vars': {'A': 'b=c'}}, {'partition': None}]
    """
    layers = []
    for option in options:
        key, sign, text = option.partition("=")
        place = f"--set {option}" if option.isprintable() and len(option) <= 80 else f"--set {key[:40]!r}"
        if not sign:
            raise JobError([f"{place}: no '=' in it. Write a key and a value, as in --set nodes=4"])
        field, dot, name = key.partition(".")
        if not known(field):
            raise JobError([problem_with_key(field, place)])
        if dot and field != "env_vars":
            raise JobError([f"{place}: {field} has no parts. Write --set {field}=VALUE"])
        if field == "env_vars":
            if not name:
                raise JobError([f"{place}: which variable? Write --set env_vars.NAME=VALUE"])
            layers.append(Layer(place, {field: {name: text}}))
            continue
        layers.append(Layer(place, {field: value_of(field, text) if text else None}))
    return layers


def value_of(field: str, text: str) -> Any:
    """Read the text of an option as the kind of value that its field takes; leave it a text if that fails."""
    allowed = kinds(field)
    if bool in allowed and text in ("true", "false"):
        return text == "true"
    if int in allowed and text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    if list in allowed:
        return text.split(",")
    return text
