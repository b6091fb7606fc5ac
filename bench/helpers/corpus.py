"""Jobs with logs and labels, on which `srunbook explain` is measured: their forms, their files, and how it did.

A form of a log depends on how the job was started and how the log was kept. Each is made of the log as
`srunbook simulate` and `srun --label` print it, and says nothing that the job did not print.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from srunbook._files import write_whole
from srunbook.explain import Diagnosis, Scanner, diagnose, load_entries, load_ordinary

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


FOLDER = Path(__file__).resolve().parents[1] / "results" / "explain_corpus"
DEVELOPMENT, HELD_OUT = HALVES = ("development", "held-out")
GENERATIONS = {DEVELOPMENT: ("22.05", "24.11"), HELD_OUT: ("26.05",)}
"""Generations of Slurm on which the programs of a half ran, or whose environment they were given."""

Kind = Literal["failed", "unknown", "healthy", "quiet"]
"""`unknown`: a failure that no entry describes. `quiet`: a message that good runs print, or a failure without one."""

Outcome = Literal["right", "open", "wrong"]
"""`right`: what the label says. `open`: no entry was named where one explains the failure."""


@dataclass(frozen=True)
class Job:
    """A job with its label.

    Args:
        name: What tells it apart from all others.
        kind: What became of it.
        causes: Entries that explain it; any of them is right.
        program: The program or script, as a path in the repository.
        fault: What was done to it; empty where the program fails by itself, or not at all.
        where: Who started it: the simulation, Slurm, a plain process, or a shell in which a user typed commands.
        slurm: The generation of Slurm.
        nodes: Number of nodes; 0 where none was given.
        ranks: Number of tasks on all nodes.
        status: Exit status.
        form: In which form its log is read, besides as it was printed: a key of `FORMS`.
        log: What it printed, in the order in which the lines came.
        accounting: What Slurm says of it, in the lines that `explain` makes of that.
        completed: Whether accounting says that all of it ended well.
    """

    name: str
    kind: Kind
    causes: tuple[str, ...]
    program: str
    fault: str
    where: Literal["simulation", "slurm", "process", "shell"]
    slurm: str
    nodes: int
    ranks: int
    status: int
    form: str
    log: str
    accounting: tuple[str, ...] = ()
    completed: bool = False


class Judged(NamedTuple):
    """What `explain` made of a job.

    Args:
        outcome: Whether it was right.
        named: The entry that it named as the cause, the line that no entry knows, or nothing.
    """

    outcome: Outcome
    named: str


def half_of(program: str) -> str:
    """Return the half that a program is in, which follows from its path alone.

    >>> half_of("examples/failures/torch-peer-died/broken.py") in HALVES
    True
    """
    return HALVES[hashlib.sha256(program.encode()).digest()[0] % 2]


def drawn(name: str, choices: Sequence[str]) -> str:
    """Choose by name: the same at each run.

    >>> drawn("a", ["x"])
    'x'
    """
    return choices[int.from_bytes(hashlib.sha256(f"drawn {name}".encode()).digest()[:4], "big") % len(choices)]


def path_of(half: str) -> Path:
    """Return the file of a half."""
    return FOLDER / f"{half}.jsonl.xz"


def read_jobs(path: Path) -> list[Job]:
    """Read jobs, one JSON object on each line."""
    text = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    found = [json.loads(line) for line in text.decode("utf-8").splitlines() if line]
    lists = ("causes", "accounting")
    return [Job(**{name: tuple(value) if name in lists else value for name, value in one.items()}) for one in found]


def as_line(job: Job) -> str:
    """Return a job as one line of JSON."""
    return json.dumps(asdict(job), ensure_ascii=True) + "\n"


def pack(jobs: Iterable[Job], path: Path) -> None:
    """Write jobs, compressed."""
    text = "".join(as_line(job) for job in sorted(jobs, key=lambda job: job.name))
    write_whole(path, lzma.compress(text.encode("utf-8"), preset=9 | lzma.PRESET_EXTREME))


@cache
def scanner() -> Scanner:
    """Return what `explain` reads logs with."""
    return Scanner(load_entries(), load_ordinary())


def diagnosed(job: Job, form: str) -> Diagnosis:
    """Diagnose a job whose log has a form, with what accounting says of it."""
    scanned = [scanner().scan(name, [content]) for name, content in FORMS[form](job.log)]
    if job.accounting:
        scanned.append(scanner().scan("Slurm", ["\n".join(job.accounting).encode()]))
    return diagnose(scanned, completed=job.completed)


def judge(job: Job, form: str) -> Judged:
    """Compare the diagnosis of a job with its label."""
    cause = diagnosed(job, form).cause
    named = (cause.slug or cause.text) if cause else ""
    if job.kind in ("healthy", "quiet"):
        return Judged("wrong" if cause else "right", named)
    if cause is None or not cause.slug:
        return Judged("open" if job.causes else "right", named)
    return Judged("right" if cause.slug in job.causes else "wrong", named)
