"""ModelParallelStrategy of Lightning, of the guide *When it does not fit*, against one process; FSDPStrategy on CPUs.

`pytest tests/simulation/test_does_not_fit_lightning.py --record --full` writes the recordings anew.
"""

from __future__ import annotations

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
PROGRAM = ROOT / "examples" / "does_not_fit" / "lightning_fsdp_tp.py"
NAME = PROGRAM.name
PAGE = ROOT / "docs" / "guides" / "does-not-fit" / "lightning.md"

FULL = pytest.mark.full
MIXED = memory.PRECISIONS["mixed"]
Train = Callable[..., Training]

AS_SRUN = """
each = int(os.environ["LOCAL_WORLD_SIZE"])
os.environ |= {"SLURM_JOB_ID": "17", "SLURM_JOB_NAME": "lightning", "SLURM_NTASKS": os.environ["WORLD_SIZE"]}
os.environ |= {"SLURM_NTASKS_PER_NODE": str(each), "SLURM_PROCID": os.environ["RANK"]}
os.environ |= {"SLURM_NODEID": str(int(os.environ["RANK"]) // each), "SLURM_LOCALID": os.environ["LOCAL_RANK"]}
"""
"""What a rank runs first: Lightning asks Slurm, not torchrun, for its place."""

pytestmark = pytest.mark.usefixtures("quick_start")


@pytest.fixture(scope="module")
def run(quick_start: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Train]:
    """Run a program of the guide on ranks that srun might have started."""
    with forked.forking(PROGRAMS, *IMPORTED, "lightning.pytorch.strategies") as process:
        ranks = forked.Forked(process, tmp_path_factory.mktemp("ranks"))
        yield lambda name, *arguments, **options: train(
            ranks, PROGRAMS / name, *arguments, **{"before": AS_SRUN, **options}
        )


@pytest.fixture(scope="module")
def one(run: Train) -> Training:
    """Train the oracle: one process, in float64."""
    return run("ddp.py", 1, 1)


# One oracle -----------------------------------------------------------------------------------------------------------

LAYOUTS = [(1, 2), *(pytest.param(*each, marks=FULL) for each in ((1, 1), (2, 1), (3, 1), (1, 4), (4, 1), (2, 2)))]
"""Nodes, which FSDP divides the model among, and ranks on each, which compute together."""


@pytest.mark.parametrize(("nodes", "processes"), LAYOUTS)
def test_losses_and_model_are_those_of_one_process(nodes: int, processes: int, one: Training, run: Train) -> None:
    """In float64, the losses of 20 steps and the parameters in the end are those of one process."""
    assert difference(run(NAME, nodes, processes), one).within(EXACT, EXACT)


@pytest.mark.parametrize(
    ("nodes", "processes", "together"),
    [pytest.param(*each, marks=FULL) for each in ((1, 2, 1), (1, 3, 1), (2, 2, 1), (1, 4, 2), (2, 2, 4))],
)
def test_number_says_how_many_compute_together(
    nodes: int, processes: int, together: int, one: Training, run: Train
) -> None:
    """With a number behind the name, other meshes train to the same losses and parameters: with 1, FSDP alone."""
    assert difference(run(NAME, nodes, processes, together), one).within(EXACT, EXACT)


@pytest.mark.full
def test_oracle_sees_a_missing_factor(one: Training, run: Train) -> None:
    """With the loss not multiplied by the groups, the gradients are divided once more, and the model is another."""
    wrong = run(NAME, 1, 2, 1, edits={"return loss * shard.size()": "return loss"})

    assert difference(wrong, one).parameters > 1000 * EXACT


@pytest.mark.full
def test_oracle_sees_gradients_that_are_not_clipped(one: Training, run: Train) -> None:
    """The Trainer's argument clips the norm of the whole gradient; without it the model is another."""
    wrong = run(NAME, 1, 2, 1, edits={"        gradient_clip_val=0.25,\n": ""})

    assert difference(wrong, one).parameters > 1000 * EXACT


# What is divided ------------------------------------------------------------------------------------------------------

END = "    whole = get_model_state_dict(training.model"
ALONE = {"together = int(sys.argv[1]) if sys.argv[1:] else each": "together = 1"}
AT_THE_END = {
    "    trainer.fit(training)\n": "    trainer.fit(training)\n"
    "    model, optimizer = training.model, trainer.optimizers[0]\n"
}


@pytest.mark.parametrize("number", [2, *(pytest.param(ranks, marks=FULL) for ranks in (1, 3, 4))])
def test_each_rank_holds_its_part(number: int, run: Train) -> None:
    """As FSDP alone, each rank holds what the formula of `fsdp.py` says, padding included."""
    found, shapes = held(run, NAME, number, END, ALONE | AT_THE_END)
    needs = [memory.fully_sharded(shapes, MIXED, "adamw", ranks=number, rank=rank) for rank in range(number)]

    assert found == [[rank, need.parameters, need.gradients, need.optimizer] for rank, need in enumerate(needs)]


# What Lightning says --------------------------------------------------------------------------------------------------


def test_heads_that_do_not_divide(run: Train) -> None:
    """All ranks end, and one of them says why."""
    training = run(NAME, 1, 3)

    assert 0 not in training.statuses
    assert training.text.count("error: 4 heads do not divide among 3 ranks") == 1
    assert "error: 4 heads do not divide among 3 ranks" in PAGE.read_text(encoding="utf-8")


@pytest.mark.full
@pytest.mark.parametrize(("together", "data"), [(3, 0), (0, 2), (-1, 2)])
def test_ranks_that_do_not_fill_the_mesh(together: int, data: int, run: Train) -> None:
    """All ranks end with Lightning's message, which the page quotes."""
    training = run(NAME, 1, 2, together)
    message = "The sizes `data_parallel_size={}` and `tensor_parallel_size={}` multiplied should equal the world size"

    assert 0 not in training.statuses
    assert message.format(data, together) in training.text
    assert message.format(0, 3) in PAGE.read_text(encoding="utf-8")


STRATEGY = "strategy=ModelParallelStrategy(nodes * each // max(together, 1), together)"
REFUSALS = {
    "FSDPStrategy()": "The strategy `fsdp` requires a GPU accelerator, but received `accelerator='cpu'`.",
    "type('Mine', (FSDPStrategy,), {})()": (
        "FSDP needs a non-CPU accelerator device, but no accelerator device is detected."
    ),
}
"""What becomes of FSDPStrategy without GPUs, and of a class derived from it, which Lightning lets pass."""


@pytest.mark.parametrize("strategy", REFUSALS)
def test_fsdp_strategy_refuses_cpus(strategy: str, run: Train) -> None:
    """FSDPStrategy ends with the message that the page quotes."""
    edits = {
        STRATEGY: f"strategy={strategy}",
        "import ModelParallelStrategy": "import FSDPStrategy",
        "        gradient_clip_val=0.25,\n": "",
        "    def configure_model(self):  # the ranks are connected now\n": "    def configure_model(self):\n"
        "        self.model = gpt()\n        return\n",
    }
    training = run(NAME, 1, 1, edits=edits)

    assert 0 not in training.statuses
    assert REFUSALS[strategy] in training.text
    assert REFUSALS[strategy] in PAGE.read_text(encoding="utf-8")


def test_fsdp_strategy_does_not_clip_by_norm() -> None:
    """What clips the norm of the gradients under FSDPStrategy raises the error that the page quotes."""
    from lightning.pytorch.plugins.precision import FSDPPrecision
    from lightning.pytorch.utilities.exceptions import MisconfigurationException

    message = "`gradient_clip_algorithm='norm'` is currently not supported for `FSDPPrecision`"
    with pytest.raises(MisconfigurationException) as caught:
        FSDPPrecision("32-true").clip_grad_by_norm()

    assert str(caught.value) == message
    assert message in PAGE.read_text(encoding="utf-8")


# As a reader runs it --------------------------------------------------------------------------------------------------

MASKS = (
    Mask(r"host=\S+", "host=<name>", "another machine"),
    Mask(r"loss [\d.]+", "loss <n>", "processors round 16 bits in different ways"),
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
