"""Task layouts `4(x2),3` and GPU counts `a100:4`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

from srunbook.slurm._errors import SlurmParseError

MAX_NODES = 100_000
"""Layouts of more nodes are refused."""

ITEM = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?")
SEPARATOR = re.compile(r",(?![^(]*\))")
"""A comma outside of parentheses."""

GPUS = re.compile(r"(gpu:)?(?:([\w.+-]+):)?([0-9]{1,9})(?:\([^()]*\))?", re.ASCII)
"""A request of GPUs: whether it says so, their type, their number."""

OTHER = re.compile(r"(?!gpu\b)([A-Za-z]\w*):[\w.:+-]+(?:\([^()]*\))?", re.ASCII)
"""A request of something else; a type of GPU with its number looks like one."""

OTHER_NAMES = ("bandwidth", "craynetwork", "mic", "mps", "nic", "shard")
"""What else Slurm knows that is requested like GPUs. Sites may add more, and then write `gpu:` before the GPUs."""


def expand_tasks(text: str) -> list[int]:
    """List the number of tasks (or CPUs) on each node.

    Args:
        text: A layout as in SLURM_TASKS_PER_NODE or SLURM_JOB_CPUS_PER_NODE.

    Returns:
        One number for each node, in the order of the nodes.

    Raises:
        SlurmParseError: The text is malformed, or describes more than `MAX_NODES` nodes.

    >>> expand_tasks("4(x2),3")
    [4, 4, 3]
    """
    counts: list[int] = []
    position = 0
    for piece in text.split(","):
        match = ITEM.fullmatch(piece)
        if not match:
            raise SlurmParseError("task layout", text, position, f"{piece!r} is no count", "4(x2),3")
        times = int(match[2] or 1)
        if times < 1:
            raise SlurmParseError("task layout", text, position, f"{piece!r} repeats 0 times", "4(x2),3")
        if len(counts) + times > MAX_NODES:
            raise SlurmParseError("task layout", text, position, f"more than {MAX_NODES} nodes", "4(x2),3")
        counts.extend([int(match[1])] * times)
        position += len(piece) + 1
    return counts


def compress_tasks(counts: Iterable[int]) -> str:
    """Write the number of tasks on each node as Slurm does.

    Args:
        counts: One number for each node.

    Returns:
        The layout, as in SLURM_TASKS_PER_NODE.

    Raises:
        ValueError: A count is negative.

    >>> compress_tasks([4, 4, 3])
    '4(x2),3'
    """
    items = []
    for count, group in groupby(counts):
        if count < 0:
            raise ValueError(f"a node cannot have {count} tasks; counts are 0 or more, as in [4, 4, 3]")
        times = len(list(group))
        items.append(f"{count}(x{times})" if times > 1 else str(count))
    return ",".join(items)


def parse_gpus(text: str) -> int:
    """Count the GPUs in a request: SLURM_GPUS_PER_NODE reads `4`, `a100:4` or `a100:2,h100:2`.

    Other resources in the same list, such as `shard:4`, are no GPUs and do not count.

    Args:
        text: The request, without or with types, with or without the word `gpu`.

    Returns:
        The number of GPUs of all types.

    Raises:
        SlurmParseError: An item has no count.

    >>> parse_gpus("a100:2,h100:2")
    4
    """
    total = 0
    position = 0
    pieces = SEPARATOR.split(text)
    items = [piece.removeprefix("gres/").removeprefix("gres:") for piece in pieces]
    named = any(match and match[1] for match in map(GPUS.fullmatch, items))
    for piece, item in zip(pieces, items, strict=True):
        match, other = GPUS.fullmatch(item), OTHER.fullmatch(item)
        if not (other and (named or other[1] in OTHER_NAMES)):
            if not match:
                raise SlurmParseError("GPU request", text, position, f"{piece!r} has no count", "a100:4")
            total += int(match[3])
        position += len(piece) + 1
    return total
