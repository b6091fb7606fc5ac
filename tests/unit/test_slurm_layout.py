"""Task layouts and GPU counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srunbook.slurm import SlurmParseError, compress_tasks, expand_tasks, parse_gpus


@pytest.mark.parametrize(
    ("text", "counts"),
    [("4", [4]), ("4(x2),3", [4, 4, 3]), ("2(x3),1", [2, 2, 2, 1]), ("1,2,1", [1, 2, 1]), ("0(x2)", [0, 0])],
)
def test_layouts(text, counts):
    """Slurm's layout and the list of counts say the same."""
    assert expand_tasks(text) == counts
    assert compress_tasks(counts) == text


@given(st.lists(st.integers(0, 300), min_size=1, max_size=20))
def test_expand_undoes_compress(counts):
    """Expanding the compressed form of any counts gives these counts."""
    assert expand_tasks(compress_tasks(counts)) == counts


@pytest.mark.parametrize(
    ("text", "position"),
    [("", 0), ("4(x2", 0), ("4,,3", 2), ("4,a", 2), ("4(x0)", 0), ("-1", 0), ("1,2(x999999999)", 2), ("4(2)", 0)],
)
def test_malformed_layout(text, position):
    """A malformed layout is refused with its position and an example."""
    with pytest.raises(SlurmParseError, match=r"4\(x2\),3") as caught:
        expand_tasks(text)

    assert caught.value.position == position


def test_long_text():
    """A long text is cut short in the message."""
    with pytest.raises(SlurmParseError) as caught:
        expand_tasks("9" * 5000)

    assert len(str(caught.value)) < 300


def test_negative_count():
    """A negative count is refused."""
    with pytest.raises(ValueError, match="-1 tasks"):
        compress_tasks([1, -1])


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("4", 4),
        ("a100:4", 4),
        ("a100:2,h100:2", 4),
        ("gpu:4", 4),
        ("gpu:a100:4", 4),
        ("gpu:a100:2(IDX:0-1)", 2),
        ("3g.20gb:2", 2),
        ("1g.10gb+me:1,2080ti:2", 3),
        ("gpu:3g.20gb:2", 2),
        ("gpu:4(IDX:0-1,3)", 4),
        ("gpu:a100:2(S:0-1),gpu:h100:3(IDX:0,2,4)", 5),
        ("gres/gpu:a100:2", 2),
        ("gres:gpu:2", 2),
        ("mps:100,gpu:2", 2),
        ("craynetwork:1,gpu:2", 2),
        ("gpu:2,bandwidth:lustre:no_consume:4G", 2),
        ("license_server:1,gpu:2", 2),
        ("shard:4", 0),
        ("mps:a100:50", 0),
        ("gres/shard:a100:4,a100:1", 1),
    ],
)
def test_gpus(text, count):
    """The number of GPUs is found with and without types, and other resources are not counted."""
    assert parse_gpus(text) == count


@pytest.mark.parametrize(
    "text", ["", "a100", "a100:", ":4", "a100:4,", "a100:x", "4:a100", "gpu:2,", "gpu:2(", "²", "gpu:x", "a:b:4"]
)
def test_malformed_gpus(text):
    """A request without a count is refused."""
    with pytest.raises(SlurmParseError, match="has no count"):
        parse_gpus(text)
