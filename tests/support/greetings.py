"""Output of JAX on CPUs without the lines in which its transport greets."""

from __future__ import annotations

import re
from collections.abc import Iterable

GREETING = re.compile(
    r"((\[Gloo\] Rank ?|\d* ?is connected to ?|\d* ?peer ranks\. ?|Expected number of connected peer ranks is : ?)\d*)+"
)
"""What gloo writes when a device has met the others, in whole or in pieces."""


def without_greetings(lines: Iterable[str]) -> list[str]:
    """Lines without gloo's greetings.

    Gloo writes a greeting piece by piece, and each device greets in a thread of its own. So greetings mix with each
    other and with the lines of the program, and leave lines with nothing but a number, or empty.
    """
    lines = list(lines)
    if not any(GREETING.search(line) for line in lines):
        return lines
    told = (GREETING.sub("", line) for line in lines)
    return [line for line in told if not re.fullmatch(r"(\[\d+\]|\d+:)?[\d ]*", line)]
