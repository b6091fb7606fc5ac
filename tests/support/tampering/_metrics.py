"""Tamper with metrics.csv, and with what rank 0 printed of the same epochs."""

from __future__ import annotations

import random
import re

from support.finished_jobs import Job
from support.tampering._kinds import kind, need

Table = list[list[str]]
NO_NUMBERS = ["", "x", "0.1.2", "1,5", "None", "0x1F", "1_000", "\u0663", "\0", "0.\udcff5", "1 2", "--1", "1e", "."]
NOT_FINITE = ["nan", "NaN", "inf", "-inf", "Infinity", "1e999", "-nan", "+inf"]


def table(job: Job) -> Table:
    """Return the cells of metrics.csv, with its header."""
    text = job.content(f"{job.results}/metrics.csv").decode("utf-8", "surrogateescape")
    cells = [line.split(",") for line in text.splitlines()]
    need(cells[1:] and tuple(cells[0]) == job.columns)
    return cells


def set_table(job: Job, cells: Table) -> None:
    """Write metrics.csv."""
    text = "".join(",".join(line) + "\n" for line in cells)
    job.files[f"{job.results}/metrics.csv"] = text.encode("utf-8", "surrogateescape")


def epoch_lines(job: Job) -> dict[int, int]:
    """Return the number of the last line of each epoch in the log of rank 0."""
    marks = (re.search(rb"\bepoch (\d+)/\d+  ", line) for line in job.lines(job.log_of(0)))
    return {int(mark[1]): number for number, mark in enumerate(marks) if mark}


def compared(job: Job) -> tuple[Table, list[int]]:
    """Return the table, and the places of the columns that the log shows, too."""
    need(job.printed and epoch_lines(job))
    head, *rest = table(job)
    need(head not in rest)  # else the file is there twice, and the second header has no numbers
    return [head, *rest], [place for place, name in enumerate(job.columns) if name in job.printed]


def printed_epoch(job: Job, chance: random.Random) -> tuple[str, int, bytes]:
    """Choose an epoch by whose line metrics.csv is checked; return the path, number and text of the line."""
    compared(job)
    path, number = job.log_of(0), chance.choice(list(epoch_lines(job).values()))
    return path, number, job.lines(path)[number]


def printed_number(line: bytes, chance: random.Random) -> tuple[bytes, bytes]:
    """Choose a number in the line of an epoch; return its name and its text."""
    pairs = re.findall(rb"  (\w+) (\d[\d.e+-]*)", line)
    need(pairs)
    name, value = chance.choice(pairs)
    return name, value


# The lines of metrics.csv


@kind("epochs", "An epoch that was asked for is missing.")
def epoch_removed(job: Job, chance: random.Random) -> None:
    cells = table(job)
    cells.pop(chance.randrange(1, len(cells)))
    set_table(job, cells)


@kind("epochs", "No epoch is there.")
def all_epochs_removed(job: Job, chance: random.Random) -> None:
    set_table(job, table(job)[:1])


@kind("epochs", "An epoch is there twice, so two runs wrote the file.")
def epoch_twice(job: Job, chance: random.Random) -> None:
    cells = table(job)
    place = chance.randrange(1, len(cells))
    set_table(job, [*cells[:place], cells[place], *cells[place:]])


@kind("epochs", "Epochs out of order were not written one after the other.")
def epochs_in_other_order(job: Job, chance: random.Random) -> None:
    head, *cells = table(job)
    set_table(job, [head, *chance.sample(cells, len(cells))])


@kind("epochs", "An epoch has the number of none, or of another.")
def epoch_renumbered(job: Job, chance: random.Random) -> None:
    cells = table(job)
    wrong = ["0", "-1", "99", "1.0", "", "1e0", "nan", "x", "\u0661", "999999999999", *(line[0] for line in cells[1:])]
    chance.choice(cells[1:])[0] = chance.choice(wrong)
    set_table(job, cells)


@kind("epochs", "There are more epochs than were asked for, so another run wrote the file.")
def epoch_added(job: Job, chance: random.Random) -> None:
    cells = table(job)
    set_table(job, [*cells, [str(len(cells)), *cells[-1][1:]]])


@kind("epochs", "The file breaks off within a line, or lacks lines.")
def metrics_cut(job: Job, chance: random.Random) -> None:
    cells = table(job)
    set_table(job, cells)
    path = f"{job.results}/metrics.csv"
    whole = job.content(path).rpartition(b",")[0]  # a shorter last cell would be a number still
    job.files[path] = whole[: chance.randrange(1, len(whole))]


@kind("epochs", "Two files are written into one.")
def metrics_twice(job: Job, chance: random.Random) -> None:
    set_table(job, table(job) * 2)


@kind("epochs", "The ranks disagree about the number of epochs that they were asked for.")
def fewer_epochs_asked_of_one_rank(job: Job, chance: random.Random) -> None:
    need(table(job) and job.size > 1 and job.epochs > 1)
    job.edit(chance.randrange(job.size), "start", rb"\bepochs=\d+", b"epochs=%d" % chance.randint(1, job.epochs - 1))


@kind("epochs", "Rank 0 counts to more epochs than metrics.csv holds.")
def log_counts_to_more_epochs(job: Job, chance: random.Random) -> None:
    need(compared(job))
    path, more = job.log_of(0), b"/%d  " % (job.epochs + chance.randint(1, 9))
    job.files[path] = re.sub(rb"(\bepoch \d+)/\d+  ", rb"\g<1>" + more, job.content(path))


# Its numbers


@kind("numbers", "A number is not finite: training has diverged.")
def number_not_finite(job: Job, chance: random.Random) -> None:
    cells = table(job)
    line = chance.choice(cells[1:])
    line[chance.choice([place for place, cell in enumerate(line) if place and cell])] = chance.choice(NOT_FINITE)
    set_table(job, cells)


@kind("numbers", "A cell holds no number.")
def number_is_none(job: Job, chance: random.Random) -> None:
    cells = table(job)
    need(len(cells) > 2)  # else its column may be one without numbers
    places = [place for place, name in enumerate(job.columns) if place and "_util_" not in name]  # those may be empty
    chance.choice(cells[1:])[chance.choice(places)] = chance.choice(NO_NUMBERS)
    set_table(job, cells)


@kind("numbers", "metrics.csv says another number than rank 0 printed, by more than rounding.")
def number_differs_from_the_log(job: Job, chance: random.Random) -> None:
    _, number, line = printed_epoch(job, chance)
    epoch = next(epoch for epoch, place in epoch_lines(job).items() if place == number)
    name, value = (word.decode() for word in printed_number(line, chance))
    digits, _, exponent = value.partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
    cells = table(job)
    place = job.columns.index(name)
    cells[epoch][place] = repr(float(value) + chance.choice([-1, 1]) * unit * chance.choice([2, 5, 40, 1000]))
    set_table(job, cells)


@kind("numbers", "Each epoch has the numbers of another one.")
def numbers_of_another_epoch(job: Job, chance: random.Random) -> None:
    (head, *cells), _ = compared(job)
    moved = cells[1:] + cells[:1]
    set_table(job, [head, *([line[0], *other[1:]] for line, other in zip(cells, moved, strict=True))])


@kind("numbers", "metrics.csv is of another run: its numbers are not those that rank 0 printed.")
def numbers_of_another_run(job: Job, chance: random.Random) -> None:
    cells, places = compared(job)
    for line in cells[1:]:
        for place in places:
            line[place] = repr(float(line[place]) + 1 + chance.random())
    set_table(job, cells)


@kind("numbers", "Two columns have each other's names.")
def columns_swapped(job: Job, chance: random.Random) -> None:
    cells, places = compared(job)
    one, two = chance.sample(places, 2)
    cells[0][one], cells[0][two] = cells[0][two], cells[0][one]
    set_table(job, cells)


@kind("numbers", "A column is there twice with different numbers, and nobody knows which are the right ones.")
def column_twice(job: Job, chance: random.Random) -> None:
    cells, places = compared(job)
    place = chance.choice(places)
    cells[0].append(cells[0][place])
    for line in cells[1:]:
        line.append(f"{line[place]}5")
    set_table(
        job, chance.choice([cells, [[*line[:place], line[-1], *line[place + 1 : -1], line[place]] for line in cells]])
    )


@kind("numbers", "Rank 0 printed these numbers, and metrics.csv has none in their column.")
def column_emptied(job: Job, chance: random.Random) -> None:
    cells, places = compared(job)
    for place in chance.choice([places, [chance.choice(places)]]):
        for line in cells[1:]:
            line[place] = ""
    set_table(job, cells)


@kind("numbers", "No column has the name of a number that rank 0 printed, so none was compared.")
def columns_renamed(job: Job, chance: random.Random) -> None:
    cells, places = compared(job)
    for place in places:
        cells[0][place] += "_2"
    set_table(job, cells)


# What rank 0 printed


@kind("printed", "metrics.csv has an epoch of which rank 0 said nothing.")
def epoch_not_printed(job: Job, chance: random.Random) -> None:
    path, _, line = printed_epoch(job, chance)
    mark = re.search(rb"\bepoch \d+/", line)
    kept = [other for other in job.lines(path) if mark and mark[0] not in other]
    job.files[path] = b"\n".join(kept)


@kind("printed", "Of one epoch rank 0 did not print, or not readably, what it printed of the others.")
def number_not_printed(job: Job, chance: random.Random) -> None:
    path, number, line = printed_epoch(job, chance)
    need(len(epoch_lines(job)) > 1)
    name, value = printed_number(line, chance)
    half = len(value) // 2
    wrong = [value[:half] + b"\xff" + value[half:], value + b"x", b"-", b"", b"None"]
    job.change(path, number, line.replace(b"  %s %s" % (name, value), b"  %s %s" % (name, chance.choice(wrong))))


@kind("printed", "A long word took the place of an epoch's numbers; it must not take long to read, either.")
def endless_word(job: Job, chance: random.Random) -> None:
    path, number, line = printed_epoch(job, chance)
    word = chance.choice([b"a", b"1", b"a1", b"-", b"1."]) * chance.choice([500, 500, 20_000])
    job.change(path, number, re.sub(rb"(\bepoch \d+/\d+  ).*", rb"\g<1>" + word, line))


@kind("printed", "Rank 0 printed another number than metrics.csv has.")
def number_printed_differs(job: Job, chance: random.Random) -> None:
    path, number, line = printed_epoch(job, chance)
    name, value = printed_number(line, chance)
    other = chance.choice([b"9" + value, b"-" + value, b"nan", b"inf"])
    job.change(path, number, line.replace(b"  %s %s" % (name, value), b"  %s %s" % (name, other)))


@kind("printed", "Rank 0 began once, and said two different things of one epoch.")
def epoch_printed_twice(job: Job, chance: random.Random) -> None:
    need(job.attempts == job.runs == 1)
    path, number, line = printed_epoch(job, chance)
    need(sum(b"rank 0/" in line and b" start" in line for line in job.lines(path)) == 1)
    name, value = printed_number(line, chance)
    other = line.replace(b"  %s %s" % (name, value), b"  %s 9%s" % (name, value))
    job.change(path, number, *chance.sample([line, other], 2))


@kind("printed", "Rank 0 printed a loss that is no number: training has diverged.")
def loss_printed_is_nan(job: Job, chance: random.Random) -> None:
    need(job.shape != "silent" and epoch_lines(job))
    path, (*_, number) = job.log_of(0), epoch_lines(job).values()
    line = re.sub(rb"train_loss \d[\d.e+-]*", b"train_loss nan", job.lines(path)[number])
    job.change(path, number, line)
