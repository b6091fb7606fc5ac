"""Host lists such as `rack[0-1]n[01-04]-ib,login`, task layouts such as `4(x2),3`, and GPU counts such as `a100:4`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby, product

LARGEST = 100_000
"""Longer ranges and layouts are refused: no cluster has them, and `n[0-999999999]` would eat the memory."""

NAME = r"(?:[^\s,\[\]]|\[[^\s\[\]]*\])+"
"""A name with brackets. A comma inside brackets does not end it."""

RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
LAYOUT = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?")
GPUS = re.compile(r"(?:[\w.+-]+:){0,2}([0-9]{1,9})", re.ASCII)


class SlurmParseError(ValueError):
    """A text does not have the form that Slurm gives it; the message says what it should have been."""

    def __init__(self, what: str, text: str, problem: str, example: str) -> None:
        shown = text if len(text) <= 110 else f"{text[:77]}...{text[-30:]}"
        super().__init__(f"{what} {shown!r}: {problem}; it reads like {example!r}")


def _wrong_hosts(text: str, problem: str) -> SlurmParseError:
    return SlurmParseError("host list", text, problem, "rack[0-1]n[01-04]-ib,login")


def expand_hostlist(text: str) -> list[str]:
    """List the hosts in a host list, in its order.

    The leftmost bracket varies slowest, as in `scontrol show hostnames`.

    Raises:
        SlurmParseError: The text is malformed, or has a range of more than 100,000 numbers.

    >>> expand_hostlist("n[09-11],login")
    ['n09', 'n10', 'n11', 'login']
    """
    if not text:
        return []
    if not re.fullmatch(f"{NAME}(?:,{NAME})*", text):
        raise _wrong_hosts(text, "an empty name, a space, or a bracket without its other half")
    hosts: list[str] = []
    for name in re.findall(NAME, text):
        parts = re.findall(r"\[[^]]*\]|[^\[]+", name)
        choices = [_numbers(text, part[1:-1]) if part.startswith("[") else [part] for part in parts]
        hosts.extend(map("".join, product(*choices)))
    return hosts


def _numbers(text: str, inside: str) -> list[str]:
    """List the numbers between two brackets, padded as their range is."""
    numbers: list[str] = []
    for piece in inside.split(","):
        match = RANGE.fullmatch(piece)
        if not match:
            raise _wrong_hosts(text, f"{piece[:40]!r} is no number and no range")
        first, last = int(match[1]), int(match[2] or match[1])
        if not 0 <= last - first < LARGEST:
            raise _wrong_hosts(text, f"the range {piece!r} runs backwards, or names more than {LARGEST} hosts")
        numbers.extend(f"{number:0{len(match[1])}}" for number in range(first, last + 1))
    return numbers


def compress_hostlist(names: Iterable[str]) -> str:
    """Write host names as `scontrol show hostlist` does: neighbours that differ in their last number share a bracket.

    The order is kept, because Slurm usually starts rank 0 on the first host.

    Raises:
        SlurmParseError: A name is empty, or contains a bracket, a comma or a space.

    >>> compress_hostlist(["n01", "n02", "n04", "login"])
    'n[01-02,04],login'
    """
    written = []
    for (prefix, numbered), group in groupby(map(_split, names), key=lambda parts: (parts[0], bool(parts[1]))):
        numbers = [digits for _, digits in group]
        if not numbered:
            written += [prefix] * len(numbers)
            continue
        runs: list[tuple[str, str]] = []
        for digits in numbers:
            if runs and digits == f"{int(runs[-1][1]) + 1:0{len(runs[-1][0])}}":
                runs[-1] = (runs[-1][0], digits)
            else:
                runs.append((digits, digits))
        inside = ",".join(first if first == last else f"{first}-{last}" for first, last in runs)
        written.append(f"{prefix}[{inside}]" if len(numbers) > 1 else f"{prefix}{inside}")
    return ",".join(written)


def _split(name: str) -> tuple[str, str]:
    """Split a name before the number it ends with."""
    if not re.fullmatch(r"[^\[\],\s]+", name):
        raise SlurmParseError("host name", name, "an empty name, or a bracket, a comma or a space in it", "rack0n01-ib")
    prefix = name.rstrip("0123456789")
    return prefix, name[len(prefix) :]


def expand_tasks(text: str) -> list[int]:
    """List the tasks (or CPUs) of each node, given a layout as in SLURM_TASKS_PER_NODE or SLURM_JOB_CPUS_PER_NODE.

    Raises:
        SlurmParseError: The text is malformed, or describes more than 100,000 nodes.

    >>> expand_tasks("4(x2),3")
    [4, 4, 3]
    """
    counts: list[int] = []
    for piece in text.split(","):
        match = LAYOUT.fullmatch(piece)
        if not match or not 0 < int(match[2] or 1) <= LARGEST:
            raise SlurmParseError("task layout", text, f"{piece[:40]!r} is no count", "4(x2),3")
        counts.extend([int(match[1])] * int(match[2] or 1))
    return counts


def compress_tasks(counts: Iterable[int]) -> str:
    """Write the number of tasks on each node as in SLURM_TASKS_PER_NODE.

    >>> compress_tasks([4, 4, 3])
    '4(x2),3'
    """
    times = [(count, len([*group])) for count, group in groupby(counts)]
    return ",".join(f"{count}(x{many})" if many > 1 else str(count) for count, many in times)


def parse_gpus(text: str) -> int:
    """Count the GPUs of all types in a request: SLURM_GPUS_PER_NODE reads `4`, `a100:4` or `a100:2,h100:2`.

    Raises:
        SlurmParseError: An item has no count.

    >>> parse_gpus("a100:2,h100:2")
    4
    """
    counts = [int(match[1]) for piece in text.split(",") if (match := GPUS.fullmatch(piece))]
    if len(counts) <= text.count(","):
        raise SlurmParseError("GPU request", text, "an item has no count", "a100:4")
    return sum(counts)
