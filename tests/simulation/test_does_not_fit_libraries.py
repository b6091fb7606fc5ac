"""Accelerate, Transformers' Trainer and Lightning, of the guide *When it does not fit*, against one process.

test_does_not_fit.py compares what they print with their recordings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import forked
from support.held_bytes import held
from support.one_oracle import EXACT, FEWER_STEPS, IMPORTED, STEPS, TIED, Training, difference, train

from srunbook import memory
from srunbook.ranklog import RankStart, parse_rank_lines

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "does_not_fit"
PAGES = ROOT / "docs" / "guides" / "does-not-fit"
ACCELERATE, TRAINER, LIGHTNING = NAMES = ("accelerate_fsdp.py", "trainer_fsdp.py", "lightning_fsdp_tp.py")
LIBRARIES = ("accelerate", "transformers.trainer", "lightning.pytorch.strategies")

FULL = pytest.mark.full
MIXED = memory.PRECISIONS["mixed"]
Train = Callable[..., Training]

AS_SRUN = """
each = int(os.environ["LOCAL_WORLD_SIZE"])
os.environ |= {"SLURM_JOB_ID": "17", "SLURM_JOB_NAME": "lightning", "SLURM_NTASKS": os.environ["WORLD_SIZE"]}
os.environ |= {"SLURM_NTASKS_PER_NODE": str(each), "SLURM_PROCID": os.environ["RANK"]}
os.environ |= {"SLURM_NODEID": str(int(os.environ["RANK"]) // each), "SLURM_LOCALID": os.environ["LOCAL_RANK"]}
"""
"""What a rank of Lightning runs first: it asks Slurm, not torchrun, for its place."""

pytestmark = pytest.mark.usefixtures("quick_start")


@pytest.fixture(scope="module")
def run(quick_start: None, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Train]:
    """Run a program of the guide on ranks that torchrun, or for Lightning srun, might have started."""
    with forked.forking(EXAMPLES, *IMPORTED, *LIBRARIES) as process:
        ranks = forked.Forked(process, tmp_path_factory.mktemp("ranks"))
        steps = STEPS if pytestconfig.getoption("--full") else FEWER_STEPS

        def start(name: str, *arguments: Any, **options: Any) -> Training:
            before = AS_SRUN if name == LIGHTNING else ""
            return train(ranks, EXAMPLES / name, *arguments, **{"before": before, "steps": steps, **options})

        yield start


@pytest.fixture(scope="module")
def one(run: Train) -> Training:
    """Train the oracle: one process, in float64."""
    return run("ddp.py", 1, 1)


# One oracle -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_losses_and_model_are_those_of_one_process(name: str, one: Training, run: Train) -> None:
    """In float64, the losses of all steps and the parameters in the end are those of one process."""
    assert difference(run(name, 1, 2), one).within(EXACT, EXACT)


@FULL
def test_number_says_how_many_compute_together(one: Training, run: Train) -> None:
    """With a number behind the name of Lightning's program, another mesh trains to the same losses and parameters."""
    assert difference(run(LIGHTNING, 1, 4, 2), one).within(EXACT, EXACT)


@FULL
def test_computing_again_changes_nothing(one: Training, run: Train) -> None:
    """With activations computed again, as the page on Accelerate offers, the training stays the same."""
    edits = {"cpu_ram_efficient_loading=True,": "cpu_ram_efficient_loading=True, activation_checkpointing=True,"}

    assert difference(run(ACCELERATE, 1, 2, edits=edits), one).within(EXACT, EXACT)


WRONG: dict[str, tuple[str, tuple[int, ...], dict[str, str]]] = {
    "a missing factor": (ACCELERATE, (), {"backward(loss * world_size)": "backward(loss)"}),
    "other shares": (TRAINER, (), {"BATCH_SIZE // world_size)": "BATCH_SIZE // world_size // 2)"}),
    "the Trainer's own optimizer": (  # it leaves biases and norms out of weight decay, as the page says
        TRAINER,
        (),
        {
            "    def create_optimizer(self, *_, **__):": "    def another_optimizer(self, *_, **__):",
            "        learning_rate=0.003,\n": "        learning_rate=0.003,\n        weight_decay=0.01,\n",
        },
    ),
    "a missing factor of Lightning": (LIGHTNING, (1,), {"return loss * shard.size()": "return loss"}),
    "gradients that are not clipped": (LIGHTNING, (1,), {"        gradient_clip_val=0.25,\n": ""}),
}
"""What may be wrong: the program, its arguments, and the change to its text."""


@FULL
@pytest.mark.parametrize("wrong", WRONG)
def test_oracle_sees(wrong: str, one: Training, run: Train) -> None:
    """A training that computes something else ends with another model."""
    name, arguments, edits = WRONG[wrong]

    assert difference(run(name, 1, 2, *arguments, edits=edits), one).parameters > 1000 * EXACT


# What is divided ------------------------------------------------------------------------------------------------------

KEPT = {
    "    trainer.train()\n": "    nn.Module.zero_grad = lambda *_, **__: None\n    trainer.train()\n"
    "    model, optimizer = trainer.model, trainer.optimizer.optimizer\n"
}
"""The Trainer drops the gradients after each step; here they stay, and add up."""

AT_THE_END: dict[str, tuple[str, dict[str, str]]] = {
    ACCELERATE: ("    whole = accelerator.get_state_dict(model)", {}),
    TRAINER: ("    whole = trainer.accelerator.get_state_dict(trainer.model)", KEPT),
    LIGHTNING: (
        "    whole = get_model_state_dict(training.model",
        {
            "together = int(sys.argv[1]) if sys.argv[1:] else each": "together = 1",
            "    trainer.fit(training)\n": "    trainer.fit(training)\n"
            "    model, optimizer = training.model, trainer.optimizers[0]\n",
        },
    ),
}
"""The line before which each program says what it holds, and the changes that it needs to do so."""

ON_CPUS = {
    ACCELERATE: {
        "    if not cuda:  # Accelerate shards on GPUs only, and would copy the model here\n"
        "        PartialState().distributed_type = accelerator.state.distributed_type = DistributedType.FSDP\n"
        "        accelerator.state.fsdp_plugin = plugin\n": ""
    },
    TRAINER: {"if self.args.use_cpu and self.args.world_size > 1:": "if False:"},
}
"""Removes what the pages say that the libraries leave to the program on CPUs."""

ENDING = {
    ACCELERATE: {"    accelerator.end_training()\n": "    sys.stdout.flush()\n    os._exit(0)\n"},
    TRAINER: {"    trainer.accelerator.end_training()\n": "    sys.stdout.flush()\n    os._exit(0)\n"},
}
"""Ends a copy that has printed all that counts."""


@pytest.mark.parametrize(("name", "number"), [(ACCELERATE, 3), (TRAINER, 2), (LIGHTNING, 2)])
def test_each_rank_holds_its_part(name: str, number: int, run: Train) -> None:
    """Each rank holds what the formula of `fsdp.py` says, padding included."""
    found, shapes = held(run, name, number, *AT_THE_END[name])
    needs = [memory.fully_sharded(shapes, MIXED, "adamw", ranks=number, rank=rank) for rank in range(number)]

    assert found == [[rank, need.parameters, need.gradients, need.optimizer] for rank, need in enumerate(needs)]


@FULL
@pytest.mark.parametrize("name", ON_CPUS)
def test_library_alone_copies_on_cpus(name: str, run: Train) -> None:
    """Without the lines for CPUs, the request to shard is ignored: each rank holds everything."""
    end, edits = AT_THE_END[name]
    found, shapes = held(run, name, 2, end, edits | ENDING[name] | ON_CPUS[name])
    need = memory.whole(sum(map(math.prod, shapes)), MIXED, "adamw")

    assert found == [[rank, need.parameters, need.gradients, need.optimizer] for rank in range(2)]


@FULL
def test_trainer_alone_says_nothing(run: Train) -> None:
    """Without the lines for CPUs, the Trainer wraps the model in DDP, and no message speaks of FSDP."""
    end = AT_THE_END[TRAINER][0]
    seen = {end: f"    print('wrapped', type(trainer.model_wrapped).__name__)\n{end}"}
    text = run(TRAINER, 1, 2, edits=ON_CPUS[TRAINER] | ENDING[TRAINER] | seen, steps=2).text

    assert text.count("wrapped DistributedDataParallel") == 2
    assert "fsdp" not in text.replace(TRAINER, "").lower()


def test_accelerate_on_cpus_unasked_trains_alone(run: Train) -> None:
    """Without `cpu=True` besides, each process is a world of its own, and Accelerate says nothing."""
    training = run(ACCELERATE, 1, 2, edits={**ON_CPUS[ACCELERATE], "cpu=not cuda, ": ""})
    starts = [line for line in parse_rank_lines(training.text.splitlines()) if isinstance(line, RankStart)]

    assert training.statuses == [0, 0], training.text
    assert [(start.rank, start.world_size) for start in starts] == [(0, 1)] * 2
    assert "warn" not in training.text.lower()


# Messages that the pages quote ----------------------------------------------------------------------------------------


def quoted(page: str, message: str, training: Training) -> bool:
    """Return whether a training failed with a message, and the page says so."""
    assert 0 not in training.statuses, training.text
    return message in training.text and message in (PAGES / page).read_text(encoding="utf-8")


@FULL
@pytest.mark.parametrize("given", ["model", "optimizer"])
def test_prepare_wants_model_and_optimizer(given: str, run: Train) -> None:
    """With one of both alone, Accelerate stops."""
    edits = {"model, optimizer = accelerator.prepare(model, optimizer)": f"{given} = accelerator.prepare({given})"}
    message = "When using FSDP2, a model and optimizer must be passed together"

    assert quoted("accelerate.md", message, run(ACCELERATE, 1, 2, edits=edits))


def test_one_process_is_refused(run: Train) -> None:
    """Started without a launcher, the Trainer stops."""
    lone = "for name in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'MASTER_ADDR', 'MASTER_PORT'): os.environ.pop(name)\n"

    assert quoted("trainer.md", "Using fsdp only works in distributed training.", run(TRAINER, 1, 1, before=lone))


@pytest.mark.parametrize(
    ("processes", "edits", "message"),
    [
        (3, {}, "error: 4 heads do not divide among 3 ranks"),
        (2, {"CONTEXT = 32 ": "CONTEXT = 33 "}, "error: 33 characters do not divide among 2 ranks"),
        (2, TIED, "error: a tied parameter would become two: tie it right after parallelize_module"),
    ],
)
def test_model_that_cannot_be_divided(processes: int, edits: dict[str, str], message: str, run: Train) -> None:
    """All ranks of Lightning end, and one of them says why."""
    training = run(LIGHTNING, 1, processes, edits=edits)

    assert quoted("lightning.md", message, training)
    assert training.text.count("error: ") == 1


@FULL
def test_ranks_that_do_not_fill_the_mesh(run: Train) -> None:
    """All ranks end with Lightning's message."""
    message = "The sizes `data_parallel_size=0` and `tensor_parallel_size=3` multiplied should equal the world size"

    assert quoted("lightning.md", message, run(LIGHTNING, 1, 2, 3))


def test_fsdp_strategy_refuses_cpus(run: Train) -> None:
    """FSDPStrategy ends with its message."""
    message = "The strategy `fsdp` requires a GPU accelerator, but received `accelerator='cpu'`."
    edits = {
        "strategy=ModelParallelStrategy(nodes * each // max(together, 1), together)": "strategy=FSDPStrategy()",
        "import ModelParallelStrategy": "import FSDPStrategy",
        "        gradient_clip_val=0.25,\n": "",
        "    def configure_model(self):  # the ranks are connected now\n": "    def configure_model(self):\n"
        "        self.model = gpt()\n        return\n",
    }

    assert quoted("lightning.md", message, run(LIGHTNING, 1, 1, edits=edits))


@FULL
def test_fsdp_strategy_does_not_clip_by_norm() -> None:
    """What clips the norm of the gradients under FSDPStrategy raises the error that the page quotes."""
    from lightning.pytorch.plugins.precision import FSDPPrecision
    from lightning.pytorch.utilities.exceptions import MisconfigurationException

    message = "`gradient_clip_algorithm='norm'` is currently not supported for `FSDPPrecision`"
    with pytest.raises(MisconfigurationException) as caught:
        FSDPPrecision("32-true").clip_grad_by_norm()

    assert str(caught.value) == message
    assert message in (PAGES / "lightning.md").read_text(encoding="utf-8")
