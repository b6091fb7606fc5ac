"""What the kinds that change rank lines share."""

from __future__ import annotations

import random
import re

from support.finished_jobs import VALUE, Job
from support.tampering._kinds import need


def any_rank(job: Job, chance: random.Random, *, others: bool = False) -> int:
    """Choose a rank; where it is compared to others, of a world that has some."""
    need(job.shape != "silent" and (job.size > 1 or not others))
    return chance.randrange(job.size)


def another(job: Job, chance: random.Random, rank: int) -> int:
    """Choose another rank."""
    return chance.choice([other for other in range(job.size) if other != rank])


def rank_lines(job: Job, rank: int) -> list[int]:
    """Return the numbers of the lines of its log that are a rank's."""
    mark = re.compile(rb"(?<![A-Za-z_])rank %d/\d+ (start|end)\b" % rank)
    return [number for number, line in enumerate(job.lines(job.log_of(rank))) if mark.search(line)]


def both_lines(job: Job, rank: int) -> tuple[str, int, int]:
    """Return the path of a rank's log, and the numbers of its last start line and of its last end line."""
    path, begun = job.find(rank, "start")
    return path, begun, job.find(rank, "end")[1]


def set_field(job: Job, rank: int, event: str, name: str, value: bytes) -> None:
    """Give a field of the last line of a kind of a rank another value."""
    need(job.value(rank, event, name) != value)
    job.edit(rank, event, rb"\b%s=%s" % (name.encode(), VALUE), b"%s=%s" % (name.encode(), value))


def another_hash(job: Job, chance: random.Random, rank: int) -> bytes:
    """Return the hash of a rank with one digit changed, among those that all ranks print."""
    value = job.value(rank, "end", "params")
    place = chance.randrange(shortest_hash(job))
    digit = chance.choice([digit for digit in b"0123456789abcdef" if digit != value[place]])
    return value[:place] + bytes([digit]) + value[place + 1 :]


def shortest_hash(job: Job) -> int:
    """Return the number of digits that all ranks print."""
    return min(len(job.value(rank, "end", "params")) for rank in range(job.size))


def apart(job: Job) -> bool:
    """Tell whether each rank has a log of its own."""
    return None not in job.logs


def once(job: Job) -> bool:
    """Tell whether each rank can have ended only once: there was one attempt, and in it one step of such ranks."""
    return job.attempts == job.runs == 1 and len(job.possible_steps) < 2
