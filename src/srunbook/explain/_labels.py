"""What stands before a message: a launcher's label, a time."""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

LABEL = re.compile(
    r"""\s*(?:
    \[(?:rank)?(?P<rank>\d{1,6})\]:?\ ?             # `[rank3]: ` of torch, `[3] ` of srunbook simulate
    | (?P<task>\d{1,6}):\                           # `3: ` of srun --label
    | \[\d+,(?P<mpi>\d+)\]<std(?:out|err)>:\ ?      # `[1,3]<stdout>:` of mpirun
    | \[[A-Za-z_]\w*?\d+\]:\ ?                      # `[default0]:` of torchrun
    )""",
    re.VERBOSE,
)

CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<part>\d{1,9}))?"
TIMES = (
    re.compile(rf"(?<!\d)(?P<year>\d{{4}})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T ]{CLOCK}(?:Z|[+-]\d\d:?\d\d)?"),
    re.compile(rf"(?<![A-Za-z])[IWEF](?P<month>\d\d)(?P<day>\d\d) {CLOCK}"),  # of glog, in torch and in XLA
)
LEAP_YEAR = 2000
"""The year of a time without one: it has every day."""

PREFIX = re.compile(rf"[\[(]?(?:{TIMES[0].pattern})[\])]?[ :|-]*")
"""A time at the beginning of a line, with what separates it from the message."""


class Labelled(NamedTuple):
    """A line, taken apart.

    Args:
        text: The message.
        rank: The rank that its labels name, or None.
    """

    text: str
    rank: int | None


def strip_labels(line: str) -> Labelled:
    """Take launchers' labels and the time off the beginning of a line.

    >>> strip_labels("2: [rank5]: ValueError: no")
    Labelled(text='ValueError: no', rank=5)
    >>> strip_labels("[default0]:2026-11-20 10:00:00,123 - it fails")
    Labelled(text='it fails', rank=None)
    """
    rank, place = None, 0
    while found := LABEL.match(line, place):
        named = found["rank"] or found["task"] or found["mpi"]
        rank, place = int(named) if named else rank, found.end()
    if time := PREFIX.match(line, place):
        place = time.end()
    return Labelled(line[place:].strip(), rank)


def time_of(line: str) -> float | None:
    """Return when a line was printed, in seconds of a year, by the clock it was printed by; None if it does not say.

    >>> time_of("[E1123 04:43:34.5 socket.cpp]") - time_of("2026-11-23T04:43:34")
    0.5
    """
    for pattern in TIMES:
        for found in pattern.finditer(line):
            values = (int(found[name]) for name in ("month", "day", "hour", "minute", "second"))
            month, day, hour, minute, second = values
            try:
                moment = datetime(LEAP_YEAR, month, day, hour, minute, second)
            except ValueError:
                continue
            return (moment - datetime(LEAP_YEAR, 1, 1)).total_seconds() + float(f"0.{found['part'] or 0}")
    return None
