"""FSDP by the Trainer of Transformers, of the guide *When it does not fit*, against one process.

`pytest tests/simulation/test_does_not_fit_trainer.py --record --full` writes the recordings anew.
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
PROGRAM = ROOT / "examples" / "does_not_fit" / "trainer_fsdp.py"
NAME = PROGRAM.name
PAGE = ROOT / "docs" / "guides" / "does-not-fit" / "trainer.md"

FULL = pytest.mark.full
MIXED = memory.PRECISIONS["mixed"]
Train = Callable[..., Training]

pytestmark = pytest.mark.usefixtures("quick_start")


@pytest.fixture(scope="module")
def run(quick_start: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Train]:
    """Run a program of the guide on ranks that torchrun might have started."""
    with forked.forking(PROGRAMS, *IMPORTED, "accelerate", "transformers.trainer") as process:
        ranks = forked.Forked(process, tmp_path_factory.mktemp("ranks"))
        yield lambda name, *arguments, **options: train(ranks, PROGRAMS / name, *arguments, **options)


@pytest.fixture(scope="module")
def one(run: Train) -> Training:
    """Train the oracle: one process, in float64."""
    return run("ddp.py", 1, 1)


# One oracle -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "processes"), [(1, 2), *(pytest.param(*each, marks=FULL) for each in ((1, 1), (1, 4), (2, 2)))]
)
def test_losses_and_model_are_those_of_one_process(nodes: int, processes: int, one: Training, run: Train) -> None:
    """In float64, the losses of 20 steps and the parameters in the end are those of one process."""
    assert difference(run(NAME, nodes, processes), one).within(EXACT, EXACT)


OWN_OPTIMIZER = {
    "    def create_optimizer(self, *_, **__):": "    def another_optimizer(self, *_, **__):",
    "        learning_rate=0.003,\n": "        learning_rate=0.003,\n        weight_decay=0.01,\n",
}


@pytest.mark.full
def test_oracle_sees_the_weight_decay_of_the_trainer(one: Training, run: Train) -> None:
    """The Trainer's own optimizer leaves biases and norms out of weight decay, as the page says."""
    assert difference(run(NAME, 1, 2, edits=OWN_OPTIMIZER), one).parameters > 1000 * EXACT


@pytest.mark.full
def test_oracle_sees_other_shares(one: Training, run: Train) -> None:
    """With batches of half the size, the model is another."""
    wrong = run(NAME, 1, 2, edits={"BATCH_SIZE // world_size)": "BATCH_SIZE // world_size // 2)"})

    assert difference(wrong, one).parameters > 1000 * EXACT


# What is divided ------------------------------------------------------------------------------------------------------

END = "    whole = trainer.accelerator.get_state_dict(trainer.model)"
KEPT = {
    "    trainer.train()\n": "    nn.Module.zero_grad = lambda *_, **__: None\n    trainer.train()\n"
    "    model, optimizer = trainer.model, trainer.optimizer.optimizer\n"
}
"""The Trainer drops the gradients after each step; here they stay, and add up."""

ON_CPUS = "if self.args.use_cpu and self.args.world_size > 1:"


@pytest.mark.parametrize("number", [2, *(pytest.param(ranks, marks=FULL) for ranks in (1, 4))])
def test_each_rank_holds_its_part(number: int, run: Train) -> None:
    """Each rank holds what the formula of `fsdp.py` says, padding included."""
    found, shapes = held(run, NAME, number, END, KEPT)
    needs = [memory.fully_sharded(shapes, MIXED, "adamw", ranks=number, rank=rank) for rank in range(number)]

    assert found == [[rank, need.parameters, need.gradients, need.optimizer] for rank, need in enumerate(needs)]


def test_trainer_alone_copies_on_cpus(run: Train) -> None:
    """Without the lines for CPUs, `fsdp=True` is ignored: each rank holds everything, and nothing says so."""
    ending = {"    trainer.accelerator.end_training()\n": "    sys.stdout.flush()\n    os._exit(0)\n"}
    seen = {END: "    print('wrapped', type(trainer.model_wrapped).__name__)\n" + END}
    found, shapes = held(run, NAME, 2, END, KEPT | ending | {ON_CPUS: "if False:"})
    need = memory.whole(sum(map(math.prod, shapes)), MIXED, "adamw")

    assert found == [[rank, need.parameters, need.gradients, need.optimizer] for rank in range(2)]
    text = run(NAME, 1, 2, edits={ON_CPUS: "if False:"} | ending | seen, steps=2).text
    assert text.count("wrapped DistributedDataParallel") == 2
    assert "fsdp" not in text.replace(NAME, "").lower()


def test_one_process_is_refused(run: Train) -> None:
    """Started without a launcher, the Trainer stops with the message on the page."""
    lone = "for name in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'MASTER_ADDR', 'MASTER_PORT'): os.environ.pop(name)\n"
    training = run(NAME, 1, 1, before=lone)

    assert 0 not in training.statuses
    assert "ValueError: Using fsdp only works in distributed training." in training.text
    assert "Using fsdp only works in distributed training." in PAGE.read_text(encoding="utf-8")


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
