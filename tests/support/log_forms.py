"""Forms that one and the same log has, depending on how a job was started and how its log was kept.

Each form is made of the log as `srunbook simulate` and `srun --label` print it, line by line in the order in which
the lines came. It says nothing that the job did not print.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from datetime import datetime, timedelta

LABEL = re.compile(r"(?:\[(\d+)\]|(\d+):) ?(.*)")
START = datetime(2026, 11, 20, 10)
BAR = "\r".join(f"\x1b[32m{part:3}%\x1b[0m|{'#' * (part // 10):10}|" for part in range(0, 101, 20))

Files = list[tuple[str, bytes]]
"""Names and contents of the logs of a job."""


def labelled(log: str) -> list[tuple[int | None, str]]:
    r"""Return the lines with the rank that printed each, or None.

    >>> labelled("[1] step 3\n0: done\nsrun: bye")
    [(1, 'step 3'), (0, 'done'), (None, 'srun: bye')]
    """
    return [
        (int(found[1] or found[2]), found[3]) if (found := LABEL.fullmatch(line)) else (None, line)
        for line in log.split("\n")
    ]


def one_file(log: str) -> Files:
    """Return one file."""
    return [("job.log", log.encode())]


def file_per_rank(log: str) -> Files:
    """Return a file of each rank, as `--output=rank_%t.log` makes them, and one of the lines without a rank."""
    lines: dict[int | None, list[str]] = {}
    for rank, text in labelled(log):
        lines.setdefault(rank, []).append(text)
    names = {rank: "job.log" if rank is None else f"rank_{rank}.log" for rank in lines}
    return [(names[rank], "\n".join(texts).encode()) for rank, texts in lines.items()]


def relabelled(label: Callable[[int], str]) -> Callable[[str], Files]:
    """Return a form with other labels."""
    return lambda log: one_file(
        "\n".join(text if rank is None else f"{label(rank)}{text}" for rank, text in labelled(log))
    )


def timed(log: str) -> Files:
    """Return one file with the time before each line, as `ts` and the loggers of sites put it."""
    times = ((START + timedelta(milliseconds=10 * number)).isoformat(" ", "milliseconds") for number in range(10**9))
    return one_file("\n".join(f"{time} {line}" for time, line in zip(times, log.split("\n"), strict=False)))


def coloured(log: str) -> Files:
    r"""Return one file with a progress bar that goes back with `\r` before each line, and colours around it."""
    return one_file("\n".join(f"{BAR}\r\x1b[1;31m{line}\x1b[0m" for line in log.split("\n")))


def packed(log: str) -> Files:
    """Return one file, packed."""
    return [("job.log.gz", gzip.compress(log.encode(), mtime=0))]


SHORT = 10
"""Lines of a log that nobody cuts off."""


def begun_in_a_line(log: str) -> Files:
    """Return one file that begins in the middle of its first line, as a long one does that was cut to its end."""
    first, newline, rest = log.partition("\n")
    return one_file(first[len(first) // 2 :] + newline + rest if log.count("\n") > SHORT else log)


def torn(log: str) -> Files:
    """Return one file with bytes in it that are no text, as a job leaves them that writes over its own log."""
    lines = log.encode().split(b"\n")
    middle = len(lines) // 2
    return [("job.log", b"\n".join([*lines[:middle], b"\x00\xff\xfe\x80" * 64, *lines[middle:]]))]


FORMS: dict[str, Callable[[str], Files]] = {
    "as printed": one_file,
    "a file of each rank": file_per_rank,
    "labels of srun": relabelled(lambda rank: f"{rank}: "),
    "labels of torchrun": relabelled(lambda rank: f"[default{rank}]:"),
    "no labels": relabelled(lambda _: ""),
    "a time before each line": timed,
    "colours and progress bars": coloured,
    "gzip": packed,
    "begins in a line": begun_in_a_line,
    "bytes that are no text": torn,
}
