"""Rank lines are found whatever shares their line, and one that holds something impossible is refused by name."""

from __future__ import annotations

import math
import re

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
GREETING = "[Gloo] Rank 1 is connected to 3 peer ranks. Expected number of connected peer ranks is : "
"""What gloo writes piece by piece, each time from a thread that another may interrupt."""


@pytest.mark.parametrize("before", [*LABELS, "[Gloo] Rank ", "1", GREETING, "12 % |##  |\r"])
@pytest.mark.parametrize(
    "after", ["", "\r\n", " 1 is connected to 3 peer ranks. ", GREETING, "\x1b[0m\n", "\r 20 %|##  |"]
)
def test_whatever_shares_the_line(before, after):
    """A rank line is found behind labels, greetings, colours and progress bars, and other text may follow it."""
    assert parse_rank_lines([f"{before}{START}{after}", "something else"]) == [STARTED]
    assert parse_rank_lines([f"{before}{END}{after}"]) == [ENDED]


def test_two_ranks_in_one_line():
    """Where two ranks print into one pipe, both lines are read."""
    cut = "rank 0/2 start backend=gloorank 1/2 end"

    assert parse_rank_lines([START + END, END + START]) == [STARTED, ENDED, ENDED, STARTED]
    assert parse_rank_lines([cut]) == [RankStart(0, 2, backend="gloo"), RankEnd(1, 2)]


def test_every_field_is_optional():
    """A line may say which rank of which world, and nothing else; empty and unknown fields say nothing."""
    for rest in ("", "\n", " ", "\r", "\x1b[0m", "[Gloo] Rank ", " job= pid=None", " GPU=H200 p99.9=3"):
        assert parse_rank_lines([f"rank 0/1 start{rest}"]) == [RankStart(0, 1)]
    assert math.isnan(parse_rank_lines(["rank 0/1 end loss=nan"])[0].loss)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("rank 4/4 start", "rank 4/4 start: a world of 4 has no rank 4; ranks count from 0"),
        ("rank 0/1 start host=a host=b", "rank 0/1 start: host= comes twice"),
        ("rank 0/1 start pid=7.5", "pid=7.5: expected a whole number, 0 or more"),
        ("rank 0/1 end loss=tensor(0.5)", "loss=tensor: expected a number"),
        ("rank 0/1 end params=f00", "params=f00: expected the first 8 to 64 hexadecimal digits of a SHA-256"),
    ],
)
def test_an_impossible_value(line, complaint):
    """A rank line that holds something impossible is refused, and the message names rank, field and value."""
    with pytest.raises(RankLineError, match=re.escape(complaint)):
        parse_rank_lines(["other output", f"0: {line}"])


def test_other_output():
    """A line that only resembles a rank line is other output."""
    lines = ["rank 0 of 2 start", "rank 0/2 started host=a", "rank 0/2 end-of-data steps=1", "shrank 3/8 start host=a"]

    assert parse_rank_lines([*lines, "my_rank 0/2 start host=a", "Rank 0/2 start host=a"]) == []


WORDS = st.text("abcxyzABC0189.:+/@%~#*,;_-", min_size=1, max_size=30).filter(lambda word: word != "None")
COUNTS = st.integers(0, 10**18)


@given(st.sampled_from(LABELS), st.booleans(), st.integers(1, 10**6), st.data())
def test_a_printed_line_comes_back(label, starts, world_size, data):
    """Whatever fields a program prints are read again, behind whatever label."""
    kinds = [WORDS, COUNTS, *[WORDS] * 4, COUNTS, COUNTS]
    if not starts:
        kinds = [COUNTS, st.floats(allow_nan=False), st.text("0123456789abcdef", min_size=8, max_size=64)]
    values = [data.draw(st.none() | kind) for kind in kinds]
    line = (RankStart if starts else RankEnd)(data.draw(st.integers(0, world_size - 1)), world_size, *values)
    fields = [f"{name}={value}" for name, value in list(vars(line).items())[2:] if value is not None]
    text = " ".join([f"{label}rank {line.rank}/{world_size}", "start" if starts else "end", *fields])

    assert parse_rank_lines([text]) == [line]
