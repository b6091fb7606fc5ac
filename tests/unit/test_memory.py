"""Bytes on each rank, by formula; tests/site/test_memory_form.py compares them with what a GPU held."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from srunbook import memory
from srunbook.cli import main

MIXED = memory.PRECISIONS["mixed"]
SHAPES = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=3), min_size=1, max_size=6)


def test_a_model_of_seven_billion() -> None:
    """With AdamW, 16 bytes for each parameter in 32 bits and 8 in 16; a sixteenth of it on each of 16."""
    seven = memory.read_count("7B")

    assert memory.whole(seven, MIXED, "adamw").total == 112_000_000_000
    assert memory.whole(seven, memory.PRECISIONS["bf16"], "adamw").total == 56_000_000_000
    assert memory.whole(seven, MIXED, "adamw").divided(16).total == 7_000_000_000
    assert memory.whole(seven, MIXED, "sgd").optimizer == 0


@given(SHAPES, st.integers(1, 9))
def test_ranks_together_hold_the_model(shapes: list[list[int]], ranks: int) -> None:
    """The optimizer's numbers add up to those of one process, and padding adds less than a row for each rank."""
    needs = [memory.fully_sharded(shapes, MIXED, "adamw", ranks=ranks, rank=rank) for rank in range(ranks)]
    one = memory.fully_sharded(shapes, MIXED, "adamw", ranks=1, rank=0)
    rows = memory.fully_sharded([[1, *shape[1:]] for shape in shapes], MIXED, "adamw", ranks=1, rank=0)

    assert sum(need.optimizer for need in needs) == one.optimizer
    assert len({(need.parameters, need.gradients) for need in needs}) == 1
    assert 0 <= sum(need.parameters for need in needs) - one.parameters < ranks * rows.parameters


@pytest.mark.parametrize("text", ["", "-1", "0", "1.0000001K", "1e9", "0.5", "9" * 30])
def test_a_count_that_is_none(text: str) -> None:
    """What is no number of parameters is refused and named."""
    with pytest.raises(ValueError, match=r"expected|write"):
        memory.read_count(text)


def test_command() -> None:
    """The command prints a table and nothing else."""
    result = CliRunner().invoke(main, ["memory", "7B", "--gpus", "16", "--sharing", "8", "--precision", "bf16"])

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "GB on each GPU           parameters  gradients  optimizer  together",
        "DDP, each GPU holds all       14.00      14.00      28.00     56.00",
        "FSDP, 8 share a copy           1.75       1.75       3.50      7.00",
    ]


def test_command_refuses() -> None:
    """Bad input ends with status 2, and standard output stays empty."""
    result = CliRunner().invoke(main, ["memory", "7B", "--gpus", "16", "--sharing", "3"])

    assert (result.exit_code, result.stdout) == (2, "")
    assert "16 GPUs do not divide into groups of 3" in result.stderr
    assert CliRunner().invoke(main, ["memory", "7X"]).exit_code == 2


def test_activations_of_a_block() -> None:
    """Half as many bytes in 16 bits but for the few in 32; tensor parallelism keeps two of sixteen rows whole."""
    tokens, width, heads = 8 * 1024, 1024, 16
    few = 4 * (4 + heads)
    block = {size: memory.block_activations(8, 1024, width, heads, size=size) for size in (2, 4)}

    assert block == {size: tokens * (16 * width * size + few) for size in (2, 4)}
    four = memory.block_activations(8, 1024, width, heads, size=2, ranks=4)
    assert four == tokens * (2 * width * 2 + (14 * width * 2 + few) // 4)
