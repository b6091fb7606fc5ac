"""Bytes on each rank, by formula; tests/site/test_memory_form.py compares them with what a GPU held."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from measurements import Configuration, read_measurement

from srunbook import memory
from srunbook.cli import main

MIXED = memory.PRECISIONS["mixed"]
SHAPES = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=3), min_size=1, max_size=6)


def test_a_model_of_seven_billion() -> None:
    """With AdamW, 16 bytes for each parameter in 32 bits and 8 in 16; DDP's buckets add 4, and autocast 2."""
    seven = memory.read_count("7B")

    assert memory.estimate(seven, "FSDP", gpus=16)["most"] == 7_000_000_000
    assert memory.estimate(seven, "FSDP", precision="bf16")["most"] == 56_000_000_000
    assert memory.estimate(seven, "FSDP", precision="master")["most"] == 112_000_000_000
    assert memory.estimate(seven, "FSDP", optimizer="adamw-8bit")["most"] == 70_000_000_000
    assert memory.estimate(seven, "DDP", gpus=2, precision="float32")["most"] == 140_000_000_000
    assert memory.estimate(seven, "DDP", gpus=2)["most"] == 154_000_000_000
    assert memory.estimate(seven, "DDP", precision="float32")["most"] == 112_000_000_000
    assert memory.estimate(seven, "DDP", optimizer="sgd")["optimizer"] == 0


COUNTED = read_measurement(Path(__file__).resolve().parents[2] / "bench" / "results" / "fit_memory.json").configurations


@pytest.mark.parametrize("row", COUNTED, ids=[row.name for row in COUNTED])
def test_what_pytorch_counted(row: Configuration) -> None:
    """The formulas are within 10 % of the bytes that PyTorch's operations held at once."""
    about, known = row.parameters, memory.FORMULAS["shapes"][row.parameters["model"]]
    shape = memory.Transformer(known["layers"], known["width"], known["vocabulary"], about["length"], known["tied"])
    layout = about["layout"] if about["layout"] in memory.LAYOUTS else "DDP"  # of one GPU
    options = {"gpus": about["gpus"], "shape": shape, "sequences": about["sequences"]}

    assert memory.read_count(known["count"]) == pytest.approx(about["model_parameters"], rel=0.01)
    most = memory.estimate(about["model_parameters"], layout, **options)["most"]
    assert most / 1e9 == pytest.approx(row.median("counted_GB"), rel=0.1)


@pytest.mark.parametrize("layout", memory.LAYOUTS)
def test_as_many_sequences_as_fit(layout: str) -> None:
    """So many sequences fit, and no more."""
    llama = memory.Transformer(layers=32, width=4096, vocabulary=128_256, length=4096)
    size = 250e9
    many = memory.sequences_that_fit(size, 8_030_261_248, layout, shape=llama, gpus=16)
    need = [memory.estimate(8_030_261_248, layout, shape=llama, gpus=16, sequences=many + more) for more in (0, 1)]

    assert many > 0
    assert need[0]["most"] <= size < need[1]["most"]
    assert memory.sequences_that_fit(5e9, 8_030_261_248, layout, shape=llama, gpus=16) == 0


@given(SHAPES, st.integers(1, 9))
def test_ranks_together_hold_the_model(shapes: list[list[int]], ranks: int) -> None:
    """The optimizer's numbers add up to those of one process, and padding adds less than a row for each rank."""
    needs = [memory.fully_sharded(shapes, MIXED, "adamw", ranks=ranks, rank=rank) for rank in range(ranks)]
    one = memory.fully_sharded(shapes, MIXED, "adamw", ranks=1, rank=0)
    rows = memory.fully_sharded([[1, *shape[1:]] for shape in shapes], MIXED, "adamw", ranks=1, rank=0)

    assert sum(need.optimizer for need in needs) == one.optimizer
    assert len({(need.parameters, need.gradients) for need in needs}) == 1
    assert 0 <= sum(need.parameters for need in needs) - one.parameters < ranks * rows.parameters


@pytest.mark.parametrize("text", ["", "-1", "0", "1.0000001K", "1e9", "0.5", "9" * 30, "7,00", "7  B"])
def test_a_count_that_is_none(text: str) -> None:
    """What is no number of parameters is refused and named."""
    with pytest.raises(ValueError, match=r"expected|write"):
        memory.read_count(text)


def run(*arguments: str) -> list[str]:
    """Return what the command prints."""
    result = CliRunner().invoke(main, ["memory", *arguments])
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()


def test_command() -> None:
    """The command prints a table and nothing else."""
    assert run("7B", "--gpus", "16", "--sharing", "8", "--precision", "bf16") == [
        "GB on each GPU            DDP  FSDP",
        "parameters              14.00  1.75",
        "gradients               14.00  1.75",
        "optimizer               28.00  3.50",
        "buckets, 16-bit copies  14.00  0.00",
        "most at once            70.00  7.00",
    ]


SHAPE = ("--layers=80", "--width=8192", "--vocabulary=128256")


@pytest.mark.parametrize(
    ("arguments", "last"),
    [
        (("7B", "--gpu-memory=80"), "FSDP lacks 32.00 GB: use more GPUs."),
        (("70.6B", "--gpus=64", *SHAPE, "--gpu-memory=80"), "Use FSDP, recomputing. Sequences of 4096 tokens"),
        (("70.6B", "--gpus=8", *SHAPE, "--gpu-memory=80"), "Nothing fits. Share each copy among 32 GPUs"),
        (("70.6B", *SHAPE, "--gpu-memory=80", "--length=1000000"), "A sequence of 1000000 tokens is too long"),
    ],
)
def test_verdict(arguments: tuple[str, ...], last: str) -> None:
    """The last line says what to do."""
    assert run(*arguments)[-1].startswith(last)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("7B", "--gpus=16", "--sharing=3"), "16 GPUs do not divide into groups of 3"),
        (("7X",), "is not a number of parameters"),
        (("7B", "--layers=32"), "activations need layers, width and vocabulary"),
        (("1B", *SHAPE), "embedding and head have 2101346304 parameters, and the model has 1000000000"),
    ],
)
def test_command_refuses(arguments: tuple[str, ...], problem: str) -> None:
    """Bad input ends with status 2, and standard output stays empty."""
    result = CliRunner().invoke(main, ["memory", *arguments])

    assert (result.exit_code, result.stdout) == (2, "")
    assert problem in result.stderr


def test_activations_of_a_block() -> None:
    """Half as many bytes in 16 bits but for the few in 32; tensor parallelism keeps two of sixteen rows whole."""
    tokens, width, heads = 8 * 1024, 1024, 16
    few = 4 * (4 + heads)
    block = {size: memory.block_activations(8, 1024, width, heads, size=size) for size in (2, 4)}

    assert block == {size: tokens * (16 * width * size + few) for size in (2, 4)}
    four = memory.block_activations(8, 1024, width, heads, size=2, ranks=4)
    assert four == tokens * (2 * width * 2 + (14 * width * 2 + few) // 4)
