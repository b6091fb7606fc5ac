"""Reading logs: packed, cut off, with labels, colours and progress bars."""

from __future__ import annotations

import gzip
import random
import tracemalloc

import pytest

from srunbook.explain import Scanner, load_entries
from srunbook.explain._labels import strip_labels, time_of
from srunbook.explain._reading import read_lines
from srunbook.explain._scan import MOST_FINDINGS
from srunbook.explain._trouble import trouble

MESSAGE = "RuntimeError: Distributed package doesn't have NCCL built in"
SLUG = "torch-nccl-without-gpu"


def scan(data, name="log", size=1000):
    blocks = (data[at : at + size] for at in range(0, len(data), size))
    return Scanner(load_entries()).scan(name, blocks)


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        (MESSAGE, None),
        (f"3: {MESSAGE}", 3),
        (f"[3] [rank5]: {MESSAGE}", 5),
        (f"[default1]:[rank9]: {MESSAGE}", 9),
        (f"[1,4]<stderr>:{MESSAGE}", 4),
        (f"\x1b[31m2: \x1b[1m{MESSAGE}\x1b[0m", 2),
        (f"0: 2026-11-20T10:00:00.5 {MESSAGE}", 0),
        (f" 10%|# | 1/10\r 20%|## | 2/10\r{MESSAGE}", None),
        (f"\x00\xff\x01 {MESSAGE}", None),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_message_is_found_behind_whatever_stands_before_it(line, rank, end):
    """Labels, times, colours, bars and bytes that are no text hide neither a message nor its rank."""
    data = f"step 1\n{line}{end}".encode("latin-1")
    (finding,) = scan(data).findings

    assert (finding.slug, finding.rank, finding.number) == (SLUG, rank, 2)


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_message_is_found_across_blocks(size):
    """Where a block ends makes no difference, and lines keep their numbers."""
    lines = [f"step {number}" for number in range(50)]
    data = "\n".join([*lines, MESSAGE, *lines]).encode()

    (finding,) = scan(data, size=size).findings

    assert finding.number == 51


def test_packed_log():
    """A gzipped log is read like a plain one, also one of several parts."""
    packed = gzip.compress(b"step 1\n") + gzip.compress(f"{MESSAGE}\n".encode())
    scanned = scan(packed)

    assert [finding.slug for finding in scanned.findings] == [SLUG]
    assert scanned.problems == []


@pytest.mark.parametrize(("end", "problem"), [(b"", "cut off"), (bytes(8), "damaged")])
def test_packed_log_that_is_cut_off_or_damaged(end, problem):
    """Of a gzipped log that is not whole, what it holds is read, and the damage is told."""
    noise = random.Random(3).randbytes(20_000).hex()
    scanned = scan(gzip.compress(f"{MESSAGE}\n{noise}".encode())[:-8] + end)

    assert [finding.slug for finding in scanned.findings] == [SLUG]
    assert problem in scanned.problems[0]


def test_line_without_an_end_is_cut():
    """A line of megabytes, and bytes without any line, take little memory."""
    tracemalloc.start()
    data = [b"x" * 2**16] * 200
    longest = max(len(text) for lines in read_lines(data, []) for text in lines.texts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert longest <= 2**16
    assert peak < 2**21


def test_memory_does_not_grow_with_the_log(monkeypatch):
    """Thousands of lines that all differ are forgotten again."""
    draw = random.Random(7)
    monkeypatch.setattr("srunbook.explain._scan.MOST_KINDS", 1000)
    letters = bytes.maketrans(b"0123456789", b"ghijklmnop")
    blocks = (b"\n".join(draw.randbytes(16).hex().encode().translate(letters) for _ in range(1000)) for _ in range(40))
    tracemalloc.start()
    Scanner(load_entries()).scan("log", blocks)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 2**20


def test_packed_zeros_do_not_fill_the_memory():
    """A small file that unpacks to much is unpacked piece by piece."""
    packed = gzip.compress(b"x" * 2**24)
    tracemalloc.start()
    Scanner(load_entries()).scan("log", [packed])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert len(packed) < 2**15
    assert peak < 2**23


def test_first_of_each_kind_is_told():
    """A message that comes a thousand times is one finding, at its first line."""
    scanned = scan(f"step 1\n{MESSAGE}\n".encode() * 1000)

    assert [(finding.slug, finding.number) for finding in scanned.findings] == [(SLUG, 2)]


def test_hosts_of_ranks():
    """Rank lines, and what srun says of tasks, name the nodes; a log with one rank in it is that rank's."""
    scanned = scan(f"rank 3/8 start host=node2 device=cpu\n{MESSAGE}\nsrun: error: node7: task 1: Killed\n".encode())

    assert scanned.hosts == {3: "node2", 1: "node7"}
    assert scanned.findings[0].rank == 3
    assert scan(b"0: rank 0/2 start host=node1\n1: rank 1/2 start host=node2\n").hosts == {0: "node1", 1: "node2"}


def test_rank_of_a_name():
    """The name of a log tells its rank."""
    assert scan(MESSAGE.encode(), name="results/ddp_17/rank_12.log").findings[0].rank == 12


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("2026-01-01 00:01:00,500 - INFO - step", 60.5),
        ("[2026-01-02T00:00:00.25] sched: done", 86400.25),
        ("E0101 00:00:07.000001    81 client.h:80] no", 7.000001),
        ("[rank0]:[W101 00:00:07.5 socket.cpp:1]", None),
        ("2026-13-01 00:00:00", None),
        ("no time: 10:00", None),
    ],
)
def test_time_of_a_line(line, seconds):
    """The clocks of Python's logging, of Slurm and of glog are read."""
    assert time_of(line) == (None if seconds is None else pytest.approx(seconds))


def test_time_of_the_line_before():
    """A finding without a time has that of the nearest line before it."""
    for end in ("\n2026-01-01 00:00:09 step\n", ""):
        scanned = scan(f"2026-01-01 00:00:05 step\nx\n{MESSAGE}{end}".encode(), size=30)

        assert scanned.findings[0].time == 5


def test_words_that_are_no_label():
    """A message that begins like a label keeps its text."""
    assert strip_labels("[Errno 22] Invalid argument").text == "[Errno 22] Invalid argument"
    assert strip_labels("12:30 is the time").text == "12:30 is the time"


def test_nothing_is_judged_beyond_the_last_finding(monkeypatch):
    """In a log of nothing but trouble, no line is judged after the last one that is kept; nodes are still read."""
    judged = []
    monkeypatch.setattr("srunbook.explain._scan.trouble", lambda text: judged.append(text) or trouble(text))
    letters = str.maketrans("0123456789", "ghijklmnop")
    lines = "".join(f"error: item {f'{number:05}'.translate(letters)} is lost\n" for number in range(5000))
    scanned = scan(f"{lines}srun: error: node7: task 1: Killed\n".encode(), size=2**12)

    assert len(scanned.findings) == MOST_FINDINGS
    assert len(judged) == MOST_FINDINGS
    assert scanned.hosts == {1: "node7"}
