"""Host lists: `rack[0-1]n[01-04]-ib,login` and back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from srunbook.slurm._errors import SlurmParseError

MAX_HOSTS = 100_000
"""More names than this are refused: no cluster has them, and `n[0-999999999]` would eat the memory."""

MAX_NUMBER = 2**25
"""Slurm keeps a larger number at the end of a name as part of the name (`MAX_HOST_SUFFIX` of its hostlist.c)."""

EXAMPLE = "rack[0-1]n[01-04]-ib,login"
RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]+))?")


def expand_hostlist(text: str) -> list[str]:
    """Name the hosts of a host list, in its order.

    The leftmost bracket varies slowest, as in `scontrol show hostnames`.

    Args:
        text: A host list as Slurm writes it.

    Returns:
        The host names. Empty for an empty text.

    Raises:
        SlurmParseError: The text is malformed, or names more than `MAX_HOSTS` hosts.

    >>> expand_hostlist("n[09-11],login")
    ['n09', 'n10', 'n11', 'login']
    """
    hosts: list[str] = []
    if not text:
        return hosts
    for start, end in _items(text):
        if start == end:
            raise SlurmParseError("host list", text, start, "an empty name", EXAMPLE)
        parts = _parts(text, start, end)
        if len(hosts) + prod(len(part) for part in parts) > MAX_HOSTS:
            raise SlurmParseError("host list", text, start, f"more than {MAX_HOSTS} hosts", EXAMPLE)
        hosts.extend("".join(choice) for choice in product(*parts))
    return hosts


def _items(text: str) -> list[tuple[int, int]]:
    """Return the bounds of the comma-separated items; a comma inside brackets does not separate."""
    space = re.search(r"\s", text)
    if space:
        raise SlurmParseError("host list", text, space.start(), "a space", EXAMPLE)
    bounds: list[tuple[int, int]] = []
    start, opened = 0, -1
    for position, character in enumerate(text):
        if character == "[":
            if opened >= 0:
                raise SlurmParseError("host list", text, position, "a bracket inside a bracket", EXAMPLE)
            opened = position
        elif character == "]":
            if opened < 0:
                raise SlurmParseError("host list", text, position, "a ']' that nothing opened", EXAMPLE)
            opened = -1
        elif character == "," and opened < 0:
            bounds.append((start, position))
            start = position + 1
    if opened >= 0:
        raise SlurmParseError("host list", text, opened, "a '[' that nothing closes", EXAMPLE)
    return [*bounds, (start, len(text))]


def _parts(text: str, start: int, end: int) -> list[Sequence[str]]:
    """Split one item into its parts, each with the texts it may stand for."""
    parts: list[Sequence[str]] = []
    while start < end:
        opened = text.find("[", start, end)
        if opened < 0:
            opened = end
        if opened > start:
            parts.append([text[start:opened]])
        if opened == end:
            break
        closed = text.index("]", opened)
        parts.append(_numbers(text, opened + 1, closed))
        start = closed + 1
    return parts


def _numbers(text: str, start: int, end: int) -> list[str]:
    """List the numbers between two brackets, padded as their range is."""
    numbers: list[str] = []
    for piece in text[start:end].split(","):
        match = RANGE.fullmatch(piece)
        if not match:
            raise SlurmParseError("host list", text, start, f"{piece!r} is no number and no range", EXAMPLE)
        first, last = match[1], match[2] or match[1]
        if len(last) > len(str(MAX_HOSTS)) + len(first):
            raise SlurmParseError("host list", text, start, f"more than {MAX_HOSTS} hosts", EXAMPLE)
        count = int(last) - int(first) + 1
        if count < 1:
            raise SlurmParseError("host list", text, start, f"the range {piece!r} runs backwards", EXAMPLE)
        if len(numbers) + count > MAX_HOSTS:
            raise SlurmParseError("host list", text, start, f"more than {MAX_HOSTS} hosts", EXAMPLE)
        width = len(first)
        numbers.extend(f"{number:0{width}}" for number in range(int(first), int(last) + 1))
        start += len(piece) + 1
    return numbers


@dataclass
class _Run:
    """Consecutive numbers, written with one width."""

    first: int
    last: int
    width: int

    def takes(self, digits: str) -> bool:
        """Tell whether `digits` is what this run would write next."""
        return f"{self.last + 1:0{self.width}}" == digits

    def __str__(self) -> str:
        first = f"{self.first:0{self.width}}"
        return first if self.first == self.last else f"{first}-{self.last:0{self.width}}"


def compress_hostlist(names: Iterable[str]) -> str:
    """Write host names as `scontrol show hostlist` does: neighbours that differ in their last number share a bracket.

    The order is kept, because Slurm usually starts rank 0 on the first host.

    Args:
        names: Host names, without brackets and commas.

    Returns:
        The host list. Empty when there are no names.

    Raises:
        SlurmParseError: A name is empty, or holds a bracket, a comma or a space.

    >>> compress_hostlist(["n01", "n02", "n04", "login"])
    'n[01-02,04],login'
    """
    groups: list[tuple[str, list[_Run]]] = []
    for name in names:
        prefix, digits = _split(name)
        if not digits:
            groups.append((name, []))
            continue
        if not (groups and groups[-1][0] == prefix and groups[-1][1]):
            groups.append((prefix, []))
        runs = groups[-1][1]
        number = int(digits)
        if runs and runs[-1].takes(digits):
            runs[-1].last = number
        else:
            runs.append(_Run(number, number, len(digits)))
    return ",".join(_written(prefix, runs) for prefix, runs in groups)


def _split(name: str) -> tuple[str, str]:
    """Split a name before the number it ends with."""
    bad = re.search(r"[\[\],\s]", name)
    if bad or not name:
        problem = f"a {bad[0]!r}" if bad else "an empty name"
        raise SlurmParseError("host name", name, bad.start() if bad else 0, problem, "rack0n01-ib")
    digits = re.search(r"[0-9]*\Z", name)[0]  # type: ignore[index]  # it always matches
    if len(digits) > len(str(MAX_NUMBER)) or (digits and int(digits) > MAX_NUMBER):
        return name, ""
    return name[: len(name) - len(digits)], digits


def _written(prefix: str, runs: list[_Run]) -> str:
    if not runs:
        return prefix
    inside = ",".join(map(str, runs))
    return f"{prefix}[{inside}]" if len(runs) > 1 or "-" in inside else f"{prefix}{inside}"
