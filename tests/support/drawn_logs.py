"""Drawn logs of failed jobs: messages of entries among ordinary lines, as launchers and terminals leave them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping

from support.site_search import filled

from srunbook.explain import Entry

ORDINARY = [
    "step {n} loss 0.{n}",
    "rank {r}/8 start host=gpu{r} local_rank=0 device=cpu",
    "Traceback (most recent call last):",
    '  File "/home/alice/train.py", line {n}, in <module>',
    "warning: slow disk of user=bob at 10.0.0.{r}",
    "OSError: [Errno 5] Input/output error: '/scratch/carol/x_{n}.bin'",
    "ValueError: Zeile {n} ungültig — 👩‍🔬",
    "During handling of the above exception, another exception occurred:",
    "srun: error: node{r}: task {r}: Exited with exit code 1",
    "error: no budget for token=abcdef{n}",
    "Killed",
    " {n}%|███ | {n}/100",
    "",
]
TIMES = [
    "2026-11-20 10:{m:02}:{s:02},123 ",
    "[2026-11-20T10:{m:02}:{s:02}.5] ",
    "[W1120 10:{m:02}:{s:02}.25 a.cpp:7] ",
    "",
]
LABELS = ["", "{r}: ", "[rank{r}]: ", "[{r}] ", "[default{r}]:[rank{r}]: ", "[1,{r}]<stderr>:", "[{r}] [rank9]: "]
COLOURS = ["{}", "\x1b[31m{}\x1b[0m", "\x1b]0;job\x07{}", "\x1b[2K{}\x1b[1m", "\x1b]never closed {}"]
RUBBISH = [b"\x00\x01", b"\xff\xfe", b"\xc3", b"\x85", b"\xe2\x80\xa8", b"\x1c", b"\xef\xbb\xbf"]
ENDS = ["\n", "\r\n", "\r", "\n\n"]


def drawn_logs(
    count: int, entries: Mapping[str, Entry], recorded: Iterable[Iterable[str]]
) -> Iterator[list[tuple[str, bytes]]]:
    """Yield the logs of jobs, each as names and contents.

    Args:
        count: Number of jobs.
        entries: Entries whose messages appear.
        recorded: Outputs of programs, of which pieces appear.
    """
    forms = [form for entry in entries.values() for form in entry.messages]
    pieces = [lines for output in recorded if (lines := list(output))]
    for seed in range(count):
        draw = random.Random(seed)
        names = [
            draw.choice([f"rank_{rank}.log", f"out/slurm-17_{rank}.out", "job.log"])
            for rank in range(draw.choice([1, 1, 2, 5]))
        ]
        yield [(name, log(draw, forms, pieces)) for name in dict.fromkeys(names)]


def log(draw: random.Random, forms: list[str], pieces: list[list[str]]) -> bytes:
    """Return one log."""
    lines = draw.choices(ORDINARY, k=draw.randint(0, 40))
    for form in draw.choices(forms, k=draw.choice([0, 1, 1, 2, 4])):
        lines.insert(
            draw.randint(0, len(lines)),
            filled(form, str(draw.randint(1, 9999)), "gpu17.cluster").replace("{", "{{").replace("}", "}}"),
        )
    text = [braced(line, draw) for line in lines]
    if draw.random() < 0.3:
        text += draw.choice(pieces)
    if draw.random() < 0.2:
        draw.shuffle(text)
    label, time, colour, end = (draw.choice(kinds) for kinds in (LABELS, TIMES, COLOURS, ENDS))
    data = bytearray()
    for line in text:
        before = (label + time).format(r=draw.randint(0, 7), m=draw.randint(0, 59), s=draw.randint(0, 61))
        data += f"{before}{colour.replace('{}', line) if draw.random() < 0.5 else line}{end}".encode()
        if draw.random() < 0.03:
            data += draw.choice(RUBBISH)
        if draw.random() < 0.005:
            data += b"error: x" * 10_000
    return bytes(data[: draw.randint(1, len(data))] if data and draw.random() < 0.3 else data) or b"\n"


def braced(line: str, draw: random.Random) -> str:
    """Fill in the numbers of a line."""
    return line.format(n=draw.randint(1, 99), r=draw.randint(0, 7))
