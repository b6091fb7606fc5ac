"""The programs of the guide *When it does not fit*: every layout against one process, and bad input.

`pytest tests/simulation/test_does_not_fit.py --record --full` writes the recordings anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import forked
from support.effects import EVERY_PIECE, KEEP_WHOLE, LOCAL_NORM, step_of
from support.held_bytes import held
from support.one_oracle import (
    EXACT,
    FEWER_STEPS,
    IMPORTED,
    PROGRAMS,
    STEPS,
    TIED,
    TIED_LATER,
    Training,
    difference,
    train,
)
from support.saved_bytes import predicted_bytes, saved_bytes

from recordings.comparing import ROUNDING
from srunbook import memory
from srunbook.ranklog import RankStart, parse_rank_lines

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "does_not_fit"

FULL = pytest.mark.full
MIXED = memory.PRECISIONS["mixed"]
PIECES = {"pieces": 4, "recompute": True}
Train = Callable[..., Training]

pytestmark = pytest.mark.usefixtures("quick_start")


@pytest.fixture(scope="module")
def ranks(quick_start: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[forked.Forked]:
    """Start the ranks."""
    with forked.forking(EXAMPLES, *IMPORTED) as process:
        yield forked.Forked(process, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def run(ranks: forked.Forked, pytestconfig: pytest.Config) -> Train:
    """Run a program of the guide."""
    steps = STEPS if pytestconfig.getoption("--full") else FEWER_STEPS
    return lambda name, *arguments, **options: train(ranks, PROGRAMS / name, *arguments, steps=steps, **options)


@pytest.fixture(scope="module")
def one(run: Train) -> Training:
    """Train the oracle: one process, in float64, where Slurm gave GPUs and torch sees none."""
    return run("ddp.py", 1, 1, environ={"SLURM_GPUS_ON_NODE": "2"})


# One oracle -----------------------------------------------------------------------------------------------------------

LAYOUTS = [
    ("ddp.py", 1, 3),
    ("fsdp.py", 1, 3),
    ("hsdp.py", 2, 2),
    ("tensor_parallel.py", 1, 2),
    ("fsdp_tp.py", 2, 2),
    ("pipeline.py", 1, 3),
    ("less_memory.py", 1, 2),
    ("context_parallel.py", 1, 2),
]
"""Program, nodes, ranks on each. Three ranks divide neither the batch nor the layers evenly."""


@pytest.mark.parametrize(("name", "nodes", "processes"), LAYOUTS)
def test_layout_computes_what_one_process_does(
    name: str, nodes: int, processes: int, one: Training, run: Train
) -> None:
    """In float64, the losses of all steps and the parameters in the end are those of one process."""
    assert difference(run(name, nodes, processes), one).within(EXACT, EXACT)


WRONG = {
    "gradients divided by the wrong number": ("fsdp.py", 1, 2, {"(loss * world_size).backward()": "loss.backward()"}),
    "a norm without its all-reduce": ("pipeline.py", 1, 2, {"        dist.all_reduce(norm)  # over all layers\n": ""}),
    "a rank with another seed": ("fsdp.py", 1, 2, {"Generator().manual_seed(0)": "Generator().manual_seed(rank)"}),
    "ranks that compute together and read different characters": (
        "fsdp_tp.py",
        2,
        2,
        {"starts[group::groups]": "starts[rank::world_size]"},
    ),
    "gradients clipped by the norm of a rank's own parts": ("less_memory.py", 1, 2, LOCAL_NORM),
    "characters that see those after them": (
        "context_parallel.py",
        1,
        2,
        {">= torch.arange(CONTEXT": "> -1 + 0 * torch.arange(CONTEXT"},
    ),
}
"""What a layout may do wrong: the program, nodes, ranks on each, and the change to its text."""


@pytest.mark.parametrize("wrong", [*[*WRONG][:2], *(pytest.param(name, marks=FULL) for name in [*WRONG][2:])])
def test_oracle_sees(wrong: str, one: Training, run: Train) -> None:
    """A layout that computes something else is far outside of the tolerance."""
    name, nodes, processes, edits = WRONG[wrong]
    found = difference(run(name, nodes, processes, edits=edits), one)

    assert not found.within(1000 * EXACT, 1000 * EXACT)
    assert found.parameters > 1000 * EXACT


UNCHECKED = {"if len([*model.parameters()]) <": "if False and len([*model.parameters()]) <"}


@pytest.fixture(scope="module")
def tied(run: Train) -> Training:
    """Train one process whose last layer shares its weights with the first."""
    return run("ddp.py", 1, 1, edits=TIED)


@pytest.mark.parametrize(
    ("name", "nodes", "processes", "edits", "same"),
    [
        ("tensor_parallel.py", 1, 2, TIED | UNCHECKED, False),
        ("tensor_parallel.py", 1, 2, TIED_LATER, True),
        ("pipeline.py", 1, 2, TIED | UNCHECKED, False),
        pytest.param("fsdp_tp.py", 2, 2, TIED | UNCHECKED, False, marks=FULL),
        pytest.param("fsdp_tp.py", 2, 2, TIED | UNCHECKED | TIED_LATER, True, marks=FULL),
    ],
)
def test_tied_parameters_become_two(
    name: str, nodes: int, processes: int, edits: dict[str, str], same: bool, tied: Training, run: Train
) -> None:
    """Without their check, programs train another model if parameters are tied, but not if these are tied later."""
    found = difference(run(name, nodes, processes, edits=edits), tied)

    assert found.within(EXACT, EXACT) if same else not found.within(1000 * EXACT, 1000 * EXACT)


# Memory --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [3, *(pytest.param(number, marks=FULL) for number in (1, 2, 4, 5, 6, 7, 8))])
def test_memory_is_what_the_formula_says(number: int, run: Train) -> None:
    """What torch holds on each of one to eight ranks after a step is what srunbook.memory says, padding included."""
    found, shapes = held(run, "fsdp.py", number, "    whole = get_model_state_dict(")
    needs = [memory.fully_sharded(shapes, MIXED, "adamw", ranks=number, rank=rank) for rank in range(number)]

    assert found == [[rank, need.parameters, need.gradients, need.optimizer] for rank, need in enumerate(needs)]


def test_memory_of_ddp_is_what_the_formula_says(run: Train) -> None:
    """Each rank holds everything, however many there are."""
    found, shapes = held(run, "ddp.py", 2, "    if rank == 0:\n        torch.save(")
    need = memory.whole(sum(map(math.prod, shapes)), MIXED, "adamw")

    assert found == [[rank, need.parameters, need.gradients, need.optimizer] for rank in range(2)]


KEPT = [("fsdp.py", 2, {}), ("pipeline.py", 2, {}), ("less_memory.py", 2, PIECES)]
MORE = [
    ("ddp.py", 2),
    ("tensor_parallel.py", 2),
    ("context_parallel.py", 2),
    ("fsdp.py", 1),
    ("fsdp.py", 4),
    ("fsdp.py", 8),
]


@pytest.mark.parametrize(("name", "number", "how"), [*KEPT, *(pytest.param(*more, {}, marks=FULL) for more in MORE)])
def test_activations_are_what_the_formula_says(
    name: str, number: int, how: dict[str, Any], ranks: forked.Forked
) -> None:
    """What autograd keeps at most on each rank, recomputed blocks included, is within 15% of the formula."""
    assert saved_bytes(ranks, PROGRAMS / name, number) == pytest.approx(predicted_bytes(name, number, **how), rel=0.15)


BLOCKS = 4
GROUPS = BLOCKS + 1
"""Of parameters that FSDP fetches at once: the blocks, and what is left."""


@pytest.mark.parametrize(
    ("edits", "gathers", "scatters"),
    [
        ({}, 4 * (2 * BLOCKS + 1), GROUPS),
        pytest.param(EVERY_PIECE, 4 * (2 * BLOCKS + 1), 4 * GROUPS, marks=FULL),
        pytest.param(KEEP_WHOLE, GROUPS, GROUPS, marks=FULL),
    ],
)
def test_gradients_travel_once_a_step(edits: dict[str, str], gathers: int, scatters: int, ranks: forked.Forked) -> None:
    """Gradients travel after the last of four pieces, parameters for each piece unless they are kept whole."""
    found = step_of(ranks, 2, edits).collectives

    assert (found["all_gathers"], found["reduce_scatters"]) == (gathers, scatters)


# What the pages say of PyTorch on CPUs --------------------------------------------------------------------------------

OFFLOADED = {
    "import MixedPrecisionPolicy, fully_shard": "import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard",
    "fully_shard(layer, mp_policy=PRECISION)": "fully_shard(layer, offload_policy=CPUOffloadPolicy(pin_memory=False))",
    "fully_shard(model)": "fully_shard(model, offload_policy=CPUOffloadPolicy(pin_memory=False))",
}
"""What keeps the parts of a rank in the memory of its host. Without GPUs that memory cannot be pinned."""


@FULL
def test_offloading_from_cpus_to_cpus(one: Training, run: Train) -> None:
    """Offloading computes the same on CPUs, where it moves nothing."""
    assert difference(run("fsdp.py", 1, 2, edits=OFFLOADED), one).within(EXACT, EXACT)


REFUSED = "_scaled_dot_product_flash_attention_for_cpu.default does not have a sharding strategy registered"
"""What PyTorch's own `context_parallel` says on CPUs, as the page does."""


@FULL
def test_context_parallel_of_torch_knows_gpus_only(ranks: forked.Forked) -> None:
    """PyTorch's own context parallelism stops at the attention of CPUs. If it does not, rewrite the page."""
    found = train(ranks, ROOT / "bench" / "ranks" / "torch_context_parallel.py", 1, 2)
    page = ROOT / "docs" / "guides" / "does-not-fit" / "context-parallel.md"

    assert found.statuses == [1, 1], found.text
    assert REFUSED in found.text
    assert REFUSED in page.read_text(encoding="utf-8")


# Bad input ------------------------------------------------------------------------------------------------------------

LONGER = {"CONTEXT = 32 ": "CONTEXT = 33 "}
BECOMES_TWO = "a tied parameter would become two: tie it right after parallelize_module"
BAD: list[tuple[str, int, tuple[object, ...], dict[str, str], str]] = [
    ("hsdp.py", 3, (2,), {}, "3 ranks do not divide into groups of 2, only of 1, 3"),
    ("tensor_parallel.py", 3, (), {}, "4 heads do not divide among 3 ranks"),
    ("tensor_parallel.py", 2, (), LONGER, "33 characters do not divide among 2 ranks"),
    ("tensor_parallel.py", 2, (), TIED, BECOMES_TWO),
    ("fsdp_tp.py", 2, ("two",), {}, "2 ranks do not divide into groups of two, only of 1, 2"),
    ("fsdp_tp.py", 2, (2,), LONGER, "33 characters do not divide among 2 ranks"),
    ("fsdp_tp.py", 2, (2,), TIED, BECOMES_TWO),
    ("pipeline.py", 5, (), {}, "4 blocks are too few for 5 stages"),
    ("pipeline.py", 2, (), {"BATCH_SIZE = 32 ": "BATCH_SIZE = 30 "}, "30 sequences do not divide into 8 pieces"),
    ("pipeline.py", 2, (), TIED, "two stages cannot share a tied parameter"),
    ("context_parallel.py", 3, (), {}, "32 characters do not divide among 3 ranks"),
]


@pytest.mark.parametrize(("name", "processes", "arguments", "edits", "said"), BAD)
def test_bad_input_ends_all_ranks(
    name: str, processes: int, arguments: tuple[object, ...], edits: dict[str, str], said: str, run: Train
) -> None:
    """A layout that does not work out is refused in one line, by one rank, before anything is written."""
    training = run(name, 1, processes, *arguments, edits=edits)

    assert training.statuses == [2] * processes, training.text
    assert [line for line in training.text.splitlines() if "rank " not in line and line] == [f"error: {said}"]
    assert not training.parameters


# As a reader runs them ------------------------------------------------------------------------------------------------

RUNGS = (*dict.fromkeys(name for name, _, _ in LAYOUTS), "resume.py", "requeue.py", "sealed.py")
RUNGS += ("accelerate_fsdp.py", "trainer_fsdp.py", "lightning_fsdp_tp.py")


@FULL
@pytest.mark.parametrize("name", RUNGS)
def test_command_of_the_docstring(name: str, reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first command at the top of a program runs it and prints what was recorded."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # else two ranks may share a line
    program = EXAMPLES / name
    result = reader.run(program, reader.commands(program)[0])

    assert result.exit_code == 0, result.text
    starts = [line for line in parse_rank_lines(result.output) if isinstance(line, RankStart)]
    assert sorted(line.rank for line in starts) == [0, 1, 2, 3]
    reader.compare(program, result, lambda line: "loss" in line or "rank " in line, ROUNDING)


def test_gpus_that_torch_does_not_see(one: Training) -> None:
    """Where Slurm gave GPUs and torch sees none, one line says so before the first loss."""
    assert one.text.count("warning: Slurm gave this job GPUs and PyTorch sees none") == 1
    assert one.text.index("warning: ") < one.text.index("loss ")
