"""Tamper with single lines of ranks: with the line itself, with its hash, with the steps that it tells of."""

from __future__ import annotations

import hashlib
import random
import re

from support.finished_jobs import VALUE, Job
from support.tampering._kinds import kind, need
from support.tampering._ranks import (
    another,
    another_hash,
    any_rank,
    apart,
    both_lines,
    rank_lines,
    set_field,
    shortest_hash,
)

FIELDS = [("start", "host"), ("start", "backend"), ("end", "steps"), ("end", "params")]
"""Fields without which something is not proven."""


def only_line(job: Job, chance: random.Random) -> tuple[int, str]:
    """Choose a line of a rank that nothing else stands in for: its last end line, or its only start line."""
    rank, event = any_rank(job, chance), chance.choice(["start", "end"])
    need(job.runs == 1 and (event == "end" or len(rank_lines(job, rank)) == 2))
    return rank, event


@kind("lines", "A rank did not say that it began, or that it ended.")
def line_removed(job: Job, chance: random.Random) -> None:
    path, number = job.find(*only_line(job, chance))
    job.change(path, number)


@kind("lines", "The line is no rank line any more, so the rank did not say that it began, or that it ended.")
def line_damaged(job: Job, chance: random.Random) -> None:
    rank, event = only_line(job, chance)
    word = b"rank %d/%d %s" % (rank, job.size, event.encode())
    wrong = [b"x" + word, word.replace(b"nk", b"\xffnk"), word.replace(b" ", b"\0"), word.replace(b"/", b" of ")]
    wrong += [word.replace(b"a", b"\xd0\xb0"), word.upper(), word + b"ed", word.replace(b"rank", b"rank\x1b]0;x\x07")]
    job.edit(rank, event, rb"rank \d+/\d+ " + event.encode(), chance.choice(wrong))


@kind("lines", "What one rank says is in the log of another, and its own is silent.")
def lines_in_the_log_of_another(job: Job, chance: random.Random) -> None:
    rank = any_rank(job, chance, others=True)
    need(apart(job) and rank_lines(job, rank))
    own, other = job.logs[rank], job.logs[another(job, chance, rank)]
    job.files[other] = job.content(other) + job.content(own)
    job.files[own] = b"hello\n"


@kind("lines", "A rank's end, with another hash, is in the log of another rank, too: one of the two ends is false.")
def end_in_the_log_of_another(job: Job, chance: random.Random) -> None:
    rank = any_rank(job, chance, others=True)
    need(apart(job))
    path, number = job.find(rank, "end")
    end = job.lines(path)[number].replace(job.value(rank, "end", "params"), another_hash(job, chance, rank))
    other = job.logs[another(job, chance, rank)]
    job.files[other] = job.content(other) + end + b"\n"


@kind("lines", "A field holds what no program prints there, so the line was damaged.")
def value_damaged(job: Job, chance: random.Random) -> None:
    rank = any_rank(job, chance)
    event, name = chance.choice([("start", "pid"), ("start", "host"), ("end", "params"), ("end", "steps")])
    need(name != "host" or len(job.nodes) > 1)
    value = job.value(rank, event, name)
    place = chance.randint(0, min(len(value), 7))
    wrong = [b"\xff", b"\xc3", b"\xc3\xa4", b"x" * 70_000, *([b"-"] if name != "host" else [])]
    set_field(job, rank, event, name, value[:place] + chance.choice(wrong) + value[place:])


@kind("lines", "The line moves the cursor back and writes over its hash: what it shows is not what it says.")
def cursor_moved(job: Job, chance: random.Random) -> None:
    rank = any_rank(job, chance, others=True)
    value = job.value(rank, "end", "params")
    again = b"\x1b[1K\rrank %d/%d end params=" % (rank, job.size)
    back = chance.choice([b"\x1b[%dD" % len(value), b"\b" * len(value), again])
    set_field(job, rank, "end", "params", value + back + another_hash(job, chance, rank))


@kind("lines", "Two ranks wrote into one line, and which of them said what cannot be told.")
def lines_torn(job: Job, chance: random.Random) -> None:
    rank = any_rank(job, chance, others=True)
    need(not apart(job))
    (path, number), (_, place) = job.find(rank, "end"), job.find(another(job, chance, rank), "end")
    line, other = job.lines(path)[number], job.lines(path)[place]
    need(b" loss=" in line and b" params=" in other)
    cut = line.index(b" loss=") + chance.randint(1, 8)
    job.change(path, number, line[:cut] + other + line[cut:])
    job.change(path, place)


@kind("lines", "After the rank began it did not end.")
def end_before_start(job: Job, chance: random.Random) -> None:
    path, begun, ended = both_lines(job, any_rank(job, chance))
    start, end = job.lines(path)[begun], job.lines(path)[ended]
    need(begun < ended)
    job.change(path, begun, end)
    job.change(path, ended, start)


@kind("lines", "One rank does not say what the others do, so of this rank it is not proven.")
def field_unsaid_by_one(job: Job, chance: random.Random) -> None:
    rank, (event, name) = any_rank(job, chance, others=True), chance.choice(FIELDS)
    field = b" %s=" % name.encode()
    job.edit(rank, event, field + VALUE, chance.choice([b"", field, field + b"None"]))


@kind("lines", "A line that says one thing twice, and differently, says nothing.")
def field_twice(job: Job, chance: random.Random) -> None:
    rank, (event, name) = any_rank(job, chance), chance.choice(FIELDS)
    field, value = b"%s=" % name.encode(), job.value(rank, event, name)
    job.edit(rank, event, re.escape(field + value), field + value + b" " + field + value[::-1] + b"0")


# Hashes


@kind("hashes", "One rank ended with other parameters.")
def hash_of_one_rank(job: Job, chance: random.Random) -> None:
    rank = any_rank(job, chance, others=True)
    set_field(job, rank, "end", "params", another_hash(job, chance, rank))


@kind("hashes", "Some of the ranks ended with other parameters, perhaps as many as not.")
def hashes_of_some_ranks(job: Job, chance: random.Random) -> None:
    any_rank(job, chance, others=True)
    other = hashlib.sha256(chance.randbytes(8)).hexdigest().encode()[: shortest_hash(job)]
    for rank in chance.sample(range(job.size), chance.randint(1, job.size - 1)):
        set_field(job, rank, "end", "params", other)


@kind("hashes", "A rank that began once ended twice, with different parameters, and nobody knows with which.")
def end_twice_with_another_hash(job: Job, chance: random.Random) -> None:
    rank = any_rank(job, chance)
    path, number = job.find(rank, "end")
    line = job.lines(path)[number]
    other = line.replace(job.value(rank, "end", "params"), another_hash(job, chance, rank))
    job.change(path, number, *chance.sample([line, other], 2))


@kind("hashes", "So few digits are the same by chance.")
def hash_too_short(job: Job, chance: random.Random) -> None:
    rank = any_rank(job, chance)
    set_field(job, rank, "end", "params", job.value(rank, "end", "params")[: chance.randint(1, 7)])


@kind("hashes", "This is the SHA-256 of no bytes: no parameters were hashed, so nothing shows that they are the same.")
def hash_of_nothing(job: Job, chance: random.Random) -> None:
    any_rank(job, chance)
    digits = hashlib.sha256(b"").hexdigest().encode()
    for rank in range(job.size):
        set_field(job, rank, "end", "params", digits[: len(job.value(rank, "end", "params"))])


# Steps and losses


@kind("ends", "A rank made no step.")
def no_steps_on_one_rank(job: Job, chance: random.Random) -> None:
    set_field(job, any_rank(job, chance), "end", "steps", b"0")


@kind("ends", "No rank made a step.")
def no_steps(job: Job, chance: random.Random) -> None:
    any_rank(job, chance)
    for rank in range(job.size):
        set_field(job, rank, "end", "steps", b"0")


@kind("ends", "Each step is one of all ranks at once, so a rank that made fewer left the others early.")
def fewer_steps_on_one_rank(job: Job, chance: random.Random) -> None:
    rank = any_rank(job, chance, others=True)
    steps = int(job.value(rank, "end", "steps"))
    set_field(job, rank, "end", "steps", b"%d" % chance.choice([steps - 1, steps // 2, 1]))


@kind("ends", "The rank says that its last loss is no number: its training has diverged.")
def last_loss_is_nan(job: Job, chance: random.Random) -> None:
    set_field(job, any_rank(job, chance), "end", "loss", chance.choice([b"nan", b"inf", b"-inf"]))
