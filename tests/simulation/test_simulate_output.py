"""Output that is long, binary, unfinished, or that many processes write at once."""

from __future__ import annotations

import os
import random
import sys
import tracemalloc
from collections import defaultdict
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from srunbook import simulate
from srunbook.simulate._output import LONGEST_LINE, Collector, Lines


def collector(**changes):
    """Make a collector that echoes, as that of the command."""
    given = {"label": True, "echo": True, "keep": 20, "directory": None}
    return Collector(3, **{**given, **changes})


def cut(data, sizes):
    """Return the lines of some bytes that come in parts of these sizes, with what continues put together."""
    lines, found, parts = Lines(), [], []
    while data:
        size = next(sizes)
        part, data = data[:size], data[size:]
        parts += lines.feed(part)
    parts += lines.feed(b"")
    whole = ""
    for text, ends in parts:
        assert len(text) <= LONGEST_LINE
        whole += text
        if ends:
            found.append(whole)
            whole = ""
    assert whole == ""
    return found


@pytest.mark.parametrize(
    "data",
    [
        b"x" * (3 * LONGEST_LINE) + b"\ny",
        b"x" * LONGEST_LINE + b"\n" + b"x" * (LONGEST_LINE + 1) + b"\n",
        "äöü€\N{SNAKE}\n".encode() * 20_000,
        "\N{SNAKE}".encode() * (2 * LONGEST_LINE),
        b"\n" * 1000 + b"\xff\xfe\x00\r\n\xf0\x9f\n" * 1000 + b"\xf0\x9f",
        random.Random(0).randbytes(300_000),
    ],
    ids=lambda data: repr(data[:12]),
)
def test_no_byte_is_lost(data):
    """However the bytes arrive, the lines are those of the whole, letters of several bytes in one piece."""
    expected = data.decode(errors="replace").split("\n")
    expected = expected if expected[-1] else expected[:-1]
    sizes = random.Random(1)

    assert cut(data, iter(lambda: 65536, None)) == expected
    assert cut(data, iter(lambda: sizes.randrange(1, 200_000), None)) == expected


def test_long_line_takes_little_memory():
    """A line of 64 MB without an end, echoed and kept, takes no more memory than a few of its pieces."""
    data = b"x" * 65536
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        one = collector()
        tracemalloc.start()
        try:
            for _ in range(1024):
                one.take("stdout", data)
            one.finish()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak < 40 * LONGEST_LINE


def test_pieces_are_labelled(capsys):
    """A long line is echoed in pieces, each on a labelled line of its own, as soon as there is one."""
    one = collector(keep=None)
    one.take("stdout", b"a" * LONGEST_LINE + b"b")

    assert capsys.readouterr().out == f"[3] {'a' * LONGEST_LINE}\n"
    one.take("stdout", b"\nc")
    assert capsys.readouterr().out == "[3] b\n"
    one.finish()
    assert capsys.readouterr().out == "[3] c\n"
    assert list(one.lines) == [("stdout", "a" * LONGEST_LINE + "b"), ("stdout", "c")]


def test_last_pieces_are_kept():
    """With a number of lines to keep, a piece of a long line counts as one."""
    one = collector(keep=2, echo=False)
    one.take("stdout", b"a" * LONGEST_LINE + b"b" * LONGEST_LINE + b"c\n")

    assert list(one.lines) == [("stdout", "b" * LONGEST_LINE), ("stdout", "c")]


def test_file_has_the_line_whole(tmp_path):
    """The file of a rank has its bytes as they were, a long line uncut."""
    data = random.Random(0).randbytes(200_000).replace(b"\n", b"")
    one = collector(directory=tmp_path, echo=False)
    one.take("stdout", data)
    one.finish()
    one.close()

    assert (tmp_path / "rank-3.log").read_bytes() == data


def test_many_processes_at_once(program, capsys):
    """Eight processes that write long and short lines at once: each line has its label, and none is mixed with another.

    What each rank printed can be put together again from the lines with its label.
    """
    command = program(
        """
        import os, sys
        letter = "abcdefgh"[int(os.environ["SLURM_PROCID"])]
        for number in range(20):
            sys.stdout.write(letter * 3 + "\\n" + letter * 100_000 + "\\n")
        sys.stdout.write(letter)
        """
    )
    simulate.run(command, ntasks_per_node=8, echo=True)

    found = defaultdict(str)
    for line in capsys.readouterr().out.splitlines():
        label, _, text = line.partition(" ")
        found[label] += text
    letters = dict(zip((f"[{rank}]" for rank in range(8)), "abcdefgh", strict=True))
    assert found == {label: letter * (20 * 100_003 + 1) for label, letter in letters.items()}


def test_failure_with_a_long_line():
    """The last lines of a failed rank are shown again, but not megabytes of them."""
    program = "import sys; print('x' * 10_000_000); print('the reason'); sys.exit(3)"
    result = simulate.run([sys.executable, "-c", program])

    assert result.failure.endswith("[0] the reason")
    assert len(result.failure) < 10_000
    assert len(result.ranks[0].stdout) == 10_000_011
