"""Jobs with logs and labels, on which `srunbook explain` is measured: how they are kept, and how it did on one."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from support.log_forms import FORMS

from srunbook._files import write_whole
from srunbook.explain import Diagnosis, Scanner, diagnose, load_entries
from srunbook.explain._entries import load_ordinary

FOLDER = Path(__file__).resolve().parents[2] / "bench" / "results" / "explain_corpus"
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
        form: In which form its log is read, besides as it was printed; see `log_forms`.
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
    return diagnose(scanned, load_entries(), completed=job.completed)


def judge(job: Job, form: str) -> Judged:
    """Compare the diagnosis of a job with its label."""
    cause = diagnosed(job, form).cause
    named = (cause.slug or cause.text) if cause else ""
    if job.kind in ("healthy", "quiet"):
        return Judged("wrong" if cause else "right", named)
    if cause is None or not cause.slug:
        return Judged("open" if job.causes else "right", named)
    return Judged("right" if cause.slug in job.causes else "wrong", named)
