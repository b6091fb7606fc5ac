"""Kinds of tampering, and how jobs are drawn that suffer some of them."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass

from support.drawn_jobs import draw
from support.finished_jobs import Job

Change = Callable[[Job, random.Random], None]
TRIES = 400
"""Jobs that are drawn until one fits a kind."""


@dataclass(frozen=True)
class Kind:
    """A kind of tampering.

    Args:
        name: Its name.
        group: What it changes; a job suffers one of each group, so that none undoes another.
        why: Why a job so changed must not pass.
        change: What changes the job; it raises LookupError where that would change nothing that counts.
        shape: The shape of the jobs that it is for, or None for any.
    """

    name: str
    group: str
    why: str
    change: Change
    shape: str | None


KINDS: dict[str, Kind] = {}
"""All kinds, by name."""


def kind(group: str, why: str, *, shape: str | None = None) -> Callable[[Change], Change]:
    """Add a function to the kinds, under its own name."""

    def add(change: Change) -> Change:
        if change.__name__ in KINDS:
            raise ValueError(f"there are two kinds {change.__name__}")
        KINDS[change.__name__] = Kind(change.__name__, group, why, change, shape)
        return change

    return add


def need(condition: object) -> None:
    """Leave a job alone that a kind does not fit.

    Raises:
        LookupError: The condition does not hold.
    """
    if not condition:
        raise LookupError("this would change nothing that counts")


@dataclass(frozen=True)
class Case:
    """A job that was tampered with.

    Args:
        seed: What makes it again, as in `tampered(seed)`.
        job: The job.
        kinds: What was done to it, in order.
    """

    seed: str
    job: Job
    kinds: tuple[Kind, ...]

    def __str__(self) -> str:
        """Describe it as a failed test does."""
        done = " ".join(f"{kind.name}: {kind.why}" for kind in self.kinds)
        return f"tampered({self.seed!r}), a job of shape {self.job.shape!r}. {done}"


def tampered(seed: str) -> Case:
    """Draw a job and tamper with it: mostly once, sometimes twice or three times.

    Args:
        seed: Any text; of one that ends with `:NAME`, that kind is the first.

    Raises:
        ValueError: No job fits the kind.
    """
    chance = random.Random(seed)
    first = KINDS.get(seed.rpartition(":")[2]) or chance.choice(list(KINDS.values()))
    for _ in range(TRIES):
        honest = draw(chance, first.shape or (None if chance.random() < 0.2 else "plain"), tidy=True)
        job = _changed(first, honest, chance)
        if job is None:
            continue
        kinds = [first]
        others = [kind for kind in KINDS.values() if not kind.shape]
        for other in chance.sample(others, chance.choice([0, 0, 0, 0, 0, 1, 1, 2])):
            further = None if other.group in {kind.group for kind in kinds} else _changed(other, job, chance)
            if further is not None and further.snapshot() != honest.snapshot():
                job = further
                kinds.append(other)
        return Case(seed, job, tuple(kinds))
    raise ValueError(f"{first.name} fits none of {TRIES} jobs")


def _changed(kind: Kind, job: Job, chance: random.Random) -> Job | None:
    """Return the job tampered with, or None where the kind does not fit it, or has changed nothing."""
    changed = copy.deepcopy(job)
    try:
        kind.change(changed, chance)
    except LookupError:
        return None
    return changed if changed.snapshot() != job.snapshot() else None


def seeds(count: int, start: str) -> list[str]:
    """Return as many seeds, for each kind in turn."""
    names = sorted(KINDS)
    return [f"{start}-{number // len(names)}:{names[number % len(names)]}" for number in range(count)]
