"""Read the values of a job from a configuration file and from the options `--set`, with the place of each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from srunbook._yaml import Document, parse_document, read_document
from srunbook._yaml_limits import MalformedError
from srunbook.generate._errors import JobError
from srunbook.generate._layers import Layer, known, problem_with_key
from srunbook.generate._schema import kinds


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
        return _layer(read_document(path))
    except MalformedError as error:
        raise JobError([str(error)]) from None


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
        return _layer(parse_document(text, place))
    except MalformedError as error:
        raise JobError([str(error)]) from None


def _layer(document: Document) -> Layer:
    return Layer(document.place, document.values, document.lines)


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
