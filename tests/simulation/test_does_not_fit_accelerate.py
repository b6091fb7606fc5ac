"""FSDP by Hugging Face Accelerate, of the guide *When it does not fit*, against one process.

`pytest tests/simulation/test_does_not_fit_accelerate.py --record --full` writes the recordings anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import forked
from support.comparing import Mask
from support.held_bytes import held
from support.one_oracle import EXACT, IMPORTED, PROGRAMS, Training, difference, train

from srunbook import memory
from srunbook.ranklog import RankStart, parse_rank_lines

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "examples" / "does_not_fit" / "accelerate_fsdp.py"
NAME = PROGRAM.name

FULL = pytest.mark.full
MIXED = memory.PRECISIONS["mixed"]
Train = Callable[..., Training]

pytestmark = pytest.mark.usefixtures("quick_start")


@pytest.fixture(scope="module")
def run(quick_start: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Train]:
    """Run a program of the guide on ranks that torchrun might have started."""
    with forked.forking(PROGRAMS, *IMPORTED, "accelerate") as process:
        ranks = forked.Forked(process, tmp_path_factory.mktemp("ranks"))
        yield lambda name, *arguments, **options: train(ranks, PROGRAMS / name, *arguments, **options)


@pytest.fixture(scope="module")
def one(run: Train) -> Training:
    """Train the oracle: one process, in float64."""
    return run("ddp.py", 1, 1)


# One oracle -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "processes"), [(1, 2), *(pytest.param(*each, marks=FULL) for each in ((1, 1), (1, 3), (1, 4), (2, 2)))]
)
def test_losses_and_model_are_those_of_one_process(nodes: int, processes: int, one: Training, run: Train) -> None:
    """In float64, the losses of 20 steps and the parameters in the end are those of one process."""
    assert difference(run(NAME, nodes, processes), one).within(EXACT, EXACT)


@pytest.mark.full
def test_oracle_sees_a_missing_factor(one: Training, run: Train) -> None:
    """With the loss not multiplied by the ranks, the gradients are divided once more, and the model is another."""
    wrong = run(NAME, 1, 2, edits={"backward(loss * world_size)": "backward(loss)"})

    assert difference(wrong, one).parameters > 1000 * EXACT


@pytest.mark.full
def test_computing_again_changes_nothing(one: Training, run: Train) -> None:
    """With activations computed again, as the page offers, the training stays the same."""
    edits = {"cpu_ram_efficient_loading=True,": "cpu_ram_efficient_loading=True, activation_checkpointing=True,"}

    assert difference(run(NAME, 1, 2, edits=edits), one).within(EXACT, EXACT)


# What is divided ------------------------------------------------------------------------------------------------------

END = "    whole = accelerator.get_state_dict(model)"
ON_CPUS = {
    "    if not cuda:  # Accelerate shards on GPUs only, and would copy the model here\n"
    "        PartialState().distributed_type = accelerator.state.distributed_type = DistributedType.FSDP\n"
    "        accelerator.state.fsdp_plugin = plugin\n": ""
}
"""What the page says that Accelerate leaves to the program on CPUs."""


@pytest.mark.parametrize("number", [3, *(pytest.param(ranks, marks=FULL) for ranks in (1, 2, 4))])
def test_each_rank_holds_its_part(number: int, run: Train) -> None:
    """Each rank holds what the formula of `fsdp.py` says, padding included."""
    found, shapes = held(run, NAME, number, END)
    needs = [memory.fully_sharded(shapes, MIXED, "adamw", ranks=number, rank=rank) for rank in range(number)]

    assert found == [[rank, need.parameters, need.gradients, need.optimizer] for rank, need in enumerate(needs)]


def test_accelerate_alone_copies_on_cpus(run: Train) -> None:
    """Without the lines for CPUs, the plugin is ignored: each rank holds everything."""
    ending = {"    accelerator.end_training()\n": "    os._exit(0)  # this copy has printed all that counts\n"}
    found, shapes = held(run, NAME, 2, END, ON_CPUS | ending)
    need = memory.whole(sum(map(math.prod, shapes)), MIXED, "adamw")

    assert found == [[rank, need.parameters, need.gradients, need.optimizer] for rank in range(2)]


def test_accelerate_on_cpus_unasked_trains_alone(run: Train) -> None:
    """Without `cpu=True` besides, each process is a world of its own, and Accelerate says nothing."""
    training = run(NAME, 1, 2, edits={**ON_CPUS, "cpu=not cuda, ": ""})
    starts = [line for line in parse_rank_lines(training.text.splitlines()) if isinstance(line, RankStart)]

    assert training.statuses == [0, 0], training.text
    assert [(start.rank, start.world_size) for start in starts] == [(0, 1)] * 2
    assert "warn" not in training.text.lower()


@pytest.mark.full
@pytest.mark.parametrize("given", ["model", "optimizer"])
def test_prepare_wants_model_and_optimizer(given: str, run: Train) -> None:
    """With one of both alone, Accelerate stops with the message on the page."""
    edits = {"model, optimizer = accelerator.prepare(model, optimizer)": f"{given} = accelerator.prepare({given})"}
    training = run(NAME, 1, 2, edits=edits)

    assert 0 not in training.statuses
    assert "When using FSDP2, a model and optimizer must be passed together" in training.text


# As a reader runs it --------------------------------------------------------------------------------------------------

MASKS = (
    Mask(r"host=\S+", "host=<name>", "another machine"),
    Mask(r"(loss \d\.\d{3})\d+", r"\1<n>", "processors round in different ways"),
)


@pytest.mark.full
def test_command_of_the_docstring(reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first command at the top of the program runs it and prints what was recorded."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # else two ranks may share a line
    result = reader.run(PROGRAM, reader.commands(PROGRAM)[0])

    assert result.status == 0, result.text
    starts = [line for line in parse_rank_lines(result.lines) if isinstance(line, RankStart)]
    assert sorted(line.rank for line in starts) == [0, 1, 2, 3]
    reader.compare(PROGRAM, result, lambda line: "loss" in line or "rank " in line, MASKS)


@pytest.mark.full
def test_gpus_that_torch_does_not_see(run: Train) -> None:
    """Where Slurm gave GPUs and torch sees none, one line says so before the first loss."""
    text = run(NAME, 1, 1, environ={"SLURM_GPUS_ON_NODE": "2"}).text

    assert text.count("warning: Slurm gave this job GPUs and PyTorch sees none") == 1
    assert text.index("warning: ") < text.index("loss ")
