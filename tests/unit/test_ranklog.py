"""Rank lines are found whatever shares their line, and one that holds something impossible is refused by name."""

from __future__ import annotations

import math
import re
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srunbook.ranklog import RankEnd, RankLineError, RankStart, parse_rank_lines

START = (
    "rank 1/4 start host=node1 local_rank=1 device=cuda:1 backend=nccl framework=torch-2.13.0+cu130 job=17 pid=71 "
    "epochs=10"
)
STARTED = RankStart(1, 4, "node1", 1, "cuda:1", "nccl", "torch-2.13.0+cu130", "17", 71, 10)
END = "rank 1/4 end steps=220 loss=0.0144 params=1b66e5a4c16e"
ENDED = RankEnd(1, 4, 220, 0.0144, "1b66e5a4c16e")

LABELS = ["", "[0]", "[1] ", "0: ", "rank: ", "[rank0]:", "[default0]:", "node1: 0: ", "\x1b[32m[1]\x1b[0m "]
GLOO = ["[Gloo] Rank ", "1", " is connected to ", "3", " peer ranks. ", "Expected number of connected peer ranks is : "]
"""What gloo writes piece by piece, each time from a thread that another may interrupt."""


@pytest.mark.parametrize("label", [*LABELS, *GLOO, "".join(GLOO), "".join(GLOO) + "3[Gloo] Rank 1", "12 % |##  |\r"])
@pytest.mark.parametrize(
    "rest",
    [
        "",
        "\n",
        "\r\n",
        " ",
        " 1 is connected to 3 peer ranks. ",
        "[Gloo] Rank ",
        "\x1b[0m\n",
        "\r 20 %|##  | loss=9",
        '{"a": 1}',
    ],
)
def test_whatever_shares_the_line(label, rest):
    """A rank line is found behind labels, greetings, colours and progress bars, and other text may follow it."""
    assert parse_rank_lines([f"{label}{START}{rest}", "something else"]) == [STARTED]
    assert parse_rank_lines([f"{label}{END}{rest}"]) == [ENDED]


def test_gloo_directly_behind_a_value():
    """A piece of gloo's greeting that sticks to the last value is no part of it."""
    assert parse_rank_lines([f"{END}Expected number of connected peer ranks is : 3"]) == [ENDED]


def test_two_ranks_in_one_line():
    """Where two ranks print into one pipe, both lines are read."""
    assert parse_rank_lines([START + END, END + START + "\n", "\n"]) == [STARTED, ENDED, ENDED, STARTED]
    assert parse_rank_lines(["rank 0/2 start backend=gloorank 1/2 start backend=gloo"]) == [
        RankStart(0, 2, backend="gloo"),
        RankStart(1, 2, backend="gloo"),
    ]


@pytest.mark.parametrize("rest", ["", "\n", " ", "\r", "\x1b[0m", "[Gloo] Rank "])
def test_every_field_is_optional(rest):
    """A line without fields says which rank of which world, and nothing else."""
    assert parse_rank_lines([f"rank 0/1 start{rest}", f"rank 0/1 end{rest}"]) == [RankStart(0, 1), RankEnd(0, 1)]


@pytest.mark.parametrize("nothing", ["", "None"])
def test_a_field_that_says_nothing(nothing):
    """An empty value, and the None of an f-string, are as if the field were not there."""
    assert parse_rank_lines([f"rank 0/1 start job={nothing} pid={nothing} host=node1"]) == [
        RankStart(0, 1, host="node1")
    ]


def test_unknown_fields_are_skipped():
    """A program may print more than is known, in any order."""
    line = "rank 0/1 end GPU=H200 p99.9=3 loss=nan steps=inf_ x"
    assert parse_rank_lines(["rank 0/1 end GPU=H200 p99.9=3 steps=5 tokens-per-s=7 loss=1e-3 steps"]) == [
        RankEnd(0, 1, 5, 0.001)
    ]
    with pytest.raises(RankLineError, match="steps=inf_"):
        parse_rank_lines([line])


def test_a_loss_that_is_not_finite():
    """A loss of nan or inf is read as such."""
    (nan, inf) = parse_rank_lines(["rank 0/1 end loss=nan", "rank 0/1 end loss=-inf"])

    assert math.isnan(nan.loss)
    assert inf.loss == -math.inf


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("rank 4/4 start", "rank 4/4 start: a world of 4 has no rank 4; ranks count from 0"),
        ("rank 0/0 end steps=1", "rank 0/0 end: a world of 0 has no rank 0"),
        ("rank -1/2 start host=a", "rank -1/2 start: expected whole numbers of at most 18 digits, as in rank 0/2"),
        ("rank \u0663/\u0664 start", "rank \u0663/\u0664 start: expected whole numbers"),
        (f"rank {10**30}/{10**31} end steps=1", f"rank {10**30}/{10**31} end: expected"),
        ("rank 10**2/10**3 end", "rank 10**2/10**3 end: expected"),
        ("rank 0/1 start host=a host=b", "rank 0/1 start: host= comes twice"),
        ("rank 0/1 start local_rank=-1", "local_rank=-1: expected a whole number, 0 or more"),
        ("rank 0/1 start pid=7.5", "pid=7.5: expected a whole number"),
        ("rank 0/1 start epochs=ten", "epochs=ten: expected a whole number"),
        (f"rank 0/1 end steps={'9' * 19}", f"steps={'9' * 19}: expected a whole number"),
        ("rank 0/1 end steps=\uff11", "steps=\uff11: expected a whole number"),
        ("rank 0/1 end loss=tensor(0.5)", "loss=tensor: expected a number"),
        ("rank 0/1 end loss=1_0", "loss=1_0: expected a number"),
        ("rank 0/1 end params=f00", "params=f00: expected the first 8 to 64 hexadecimal digits of a SHA-256"),
        (f"rank 0/1 end params={'A' * 12}", "params=AAAAAAAAAAAA: expected"),
        (f"rank 0/1 end params={'a' * 65}", f"params={'a' * 60}: expected"),
        (f"rank 0/1 start host={'a' * 257}", f"host={'a' * 60}: expected at most 256 characters"),
    ],
)
def test_an_impossible_value(line, complaint):
    """A rank line that holds something impossible is refused, and the message names rank, field and value."""
    with pytest.raises(RankLineError, match=re.escape(complaint)):
        parse_rank_lines(["other output", f"0: {line}"])


@pytest.mark.parametrize(
    "line",
    [
        "rank 0 of 2 start",
        "rank 0/2",
        "rank 0/2 started host=a",
        "rank 0/2 end of epoch 3",
        "rank 0/2 end-of-data steps=1",
        "rank 0/2 start-up host=a",
        "rank 0/2 middle steps=1",
        "shrank 3/8 start host=a",
        "my_rank 0/2 start host=a",
        "rank 1/2: start",
        "rank 1/2. end",
        "rank one/two start",
        "rank 0/2  start host=a",
        "Rank 0/2 start host=a",
        'record {"event": "start", "rank": 0}',
    ],
)
def test_other_output(line):
    """A line that only resembles a rank line is other output."""
    assert parse_rank_lines([line]) == []


WORDS = st.text("abcxyzABC0189.:+/@%~#*,;_-", min_size=1, max_size=30).filter(lambda word: word != "None")
COUNTS = st.integers(0, 10**18 - 1)


@st.composite
def rank_lines(draw: st.DrawFn) -> RankStart | RankEnd:
    """Draw a rank line with any of its fields."""
    world_size = draw(st.integers(1, 10**18 - 1))
    place = (draw(st.integers(0, world_size - 1)), world_size)
    if draw(st.booleans()):
        digests = st.text("0123456789abcdef", min_size=8, max_size=64)
        losses = st.floats(allow_nan=False)
        return RankEnd(*place, *(draw(st.none() | kind) for kind in (COUNTS, losses, digests)))
    return RankStart(*place, *(draw(st.none() | kind) for kind in (WORDS, COUNTS, *[WORDS] * 4, COUNTS, COUNTS)))


def printed(line: RankStart | RankEnd) -> str:
    """Return the text that a program prints for a rank line."""
    fields = [f"{name}={value}" for name, value in list(vars(line).items())[2:] if value is not None]
    return " ".join([f"rank {line.rank}/{line.world_size}", "end" if isinstance(line, RankEnd) else "start", *fields])


@given(
    st.lists(st.tuples(st.sampled_from(LABELS), rank_lines(), st.sampled_from(["", "\r\n", " and more"])), max_size=6)
)
def test_lines_come_back_in_order(lines):
    """Rank lines come back as they were printed, in the order of the output, whatever label a launcher adds."""
    output = [text for label, line, rest in lines for text in ("noise", f"{label}{printed(line)}{rest}")]

    # text behind a line without fields makes it prose, as in `rank 1/2 end and more`
    expected = [line for _, line, rest in lines if rest != " and more" or "=" in printed(line)]
    assert parse_rank_lines(output) == expected


@given(st.text(st.sampled_from("rank 0123/start end=\x1b[m\r\n hostepd")) | st.text())
def test_any_line_is_read_or_refused(text):
    """Whatever a line holds, it is read, or refused with the error that says so."""
    for line in (text, f"rank 0/2 start{text}", f"rank 1/2 end steps={text}"):
        with suppress(RankLineError):
            assert all(0 <= found.rank < found.world_size for found in parse_rank_lines([line]))


@pytest.mark.parametrize(
    "line",
    [
        "rank 0/1 start" + " " * 10**6,
        "rank 0/1 start" * 10**4,
        "rank 0/1 start " + "a" * 10**6,
        "rank 0/1 end " + "x=1 " * 10**4,
        "rank 0/1 end loss=" + "1" * 10**6,
        "rank " + "1" * 10**6 + "/2 start",
        "rank 1" * 10**5,
        "rank 1/1" * 10**5,
        "\x1b[" + "3" * 10**6,
        "\x1b[" * 10**5,
    ],
    ids=["spaces", "many", "word", "fields", "digits", "rank", "ranks", "worlds", "colour", "colours"],
)
def test_a_hostile_line_takes_no_time(line):
    """The work on a line grows with its length, as that on short lines does, and not with the square of it."""

    def work(lines):
        begun = time.process_time()
        with suppress(RankLineError):
            parse_rank_lines(lines)
        return time.process_time() - begun

    assert work([line]) < 100 * work([END] * (len(line) // len(END)))
