"""Lines of an output that a library prints and the program does not: they come or stay away by chance."""

from __future__ import annotations

import re
from collections.abc import Iterable

LABEL = r"\s*(\d+: |\[\d+\] )?\s*"
"""What `srun --label` and the simulation put before each line."""

LINES = (
    (
        r"[IWE]\d{4} \S+ +\d+ torch/distributed/elastic/",
        "the agents of torchrun end in any order, and a later one finds nobody to take leave of",
    ),
    (
        r"\[[IWE]\d{4} \S+ (socket|TCPStore|ProcessGroup\w*)\.cpp:\d+\] ",
        "on a busy machine torch connects once more, or the other side of a connection ends first",
    ),
    (
        r"(Exception raised from \w+ at |frame #\d+: |<omitting python frames>$)",
        "the stack of C++ below such a line, which also names folders of the machine",
    ),
    (r"(@ +0x|\*\*\*)", "the stack of XLA, printed by a process whose peers have ended"),
    (r"RPC: /xla\.coordination", "the last call of a process of JAX to a coordinator that has ended"),
    (r"(\[rank\d+\]: +)?[~^]+[~^ ]*$", "the marks below a line of a traceback, which each Python draws differently"),
    (r"$", "an empty line, which belongs to a stack"),
)
"""How such a line begins, behind its label, and why it may be missing in one of two good runs."""

_ANY = re.compile(LABEL + "(?:" + "|".join(pattern for pattern, _ in LINES) + ")")


def is_library_line(line: str) -> bool:
    """Whether a library printed a line, and not the program.

    >>> is_library_line("1: frame #26: __libc_start_main + 0x85 (0x7f2b0a045305 in libc.so.6)")
    True
    >>> is_library_line("1: epoch 1: loss 0.17")
    False
    """
    return _ANY.match(line) is not None


def program_lines(lines: Iterable[str]) -> list[str]:
    """Return the lines of the program."""
    return [line for line in lines if not is_library_line(line)]
