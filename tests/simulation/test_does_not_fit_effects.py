"""What saves memory or traffic in the guide *When it does not fit*: each effect, counted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import forked
from support.effects import EVERY_PIECE, KEEP_WHOLE, NO_RECOMPUTATION, ONE_PIECE, norms, step_of
from support.one_oracle import EXACT, IMPORTED, PROGRAMS, Training, difference, train
from support.saved_bytes import predicted_bytes, saved_bytes

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "guides" / "does-not-fit"

FULL = pytest.mark.full

pytestmark = pytest.mark.usefixtures("quick_start")


@pytest.fixture(scope="module")
def ranks(quick_start: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[forked.Forked]:
    """Start the ranks."""
    with forked.forking(PROGRAMS, *IMPORTED) as process:
        yield forked.Forked(process, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def one(ranks: forked.Forked) -> Training:
    """Train the oracle: one process, in float64."""
    return train(ranks, PROGRAMS / "ddp.py", 1, 1)


LESS = [
    pytest.param({}, 4, True),
    pytest.param(ONE_PIECE, 1, True, marks=FULL),
    pytest.param(NO_RECOMPUTATION, 4, False, marks=FULL),
]


@pytest.mark.parametrize(("edits", "pieces", "recompute"), LESS)
def test_recomputation_keeps_what_the_formula_says(
    edits: dict[str, str], pieces: int, recompute: bool, ranks: forked.Forked
) -> None:
    """What autograd keeps at most, recomputed blocks included, is within 15% of the formula."""
    predicted = predicted_bytes("less_memory.py", 2, pieces=pieces, recompute=recompute)

    assert saved_bytes(ranks, PROGRAMS / "less_memory.py", 2, edits=edits) == pytest.approx(predicted, rel=0.15)


BLOCKS, PIECES = 4, 4
GROUPS = BLOCKS + 1
"""Of parameters that FSDP fetches at once: the blocks, and what is left."""

SENT = [
    # what is changed, all-gathers and reduce-scatters of a step
    pytest.param({}, PIECES * (2 * BLOCKS + 1), GROUPS),
    pytest.param(EVERY_PIECE, PIECES * (2 * BLOCKS + 1), PIECES * GROUPS, marks=FULL),
    pytest.param(KEEP_WHOLE, GROUPS, GROUPS, marks=FULL),
]


@pytest.mark.parametrize(("edits", "gathers", "scatters"), SENT)
def test_gradients_travel_once_a_step(edits: dict[str, str], gathers: int, scatters: int, ranks: forked.Forked) -> None:
    """Gradients travel after the last piece, parameters for each piece unless they are kept whole."""
    found = step_of(ranks, 2, edits).collectives

    assert (found["all_gathers"], found["reduce_scatters"]) == (gathers, scatters)


@FULL
def test_norm_over_shards_is_that_of_one_process(ranks: forked.Forked) -> None:
    """The norm is that of the whole gradient; that of a rank's own parts is smaller."""
    one, over_shards, own = norms(ranks, 4)

    assert over_shards == pytest.approx(one, rel=EXACT)
    assert math.hypot(*own) == pytest.approx(one, rel=EXACT)
    assert max(own) < 0.9 * one


OFFLOADED = {
    "import MixedPrecisionPolicy, fully_shard": "import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard",
    "fully_shard(layer, mp_policy=PRECISION)": "fully_shard(layer, offload_policy=CPUOffloadPolicy(pin_memory=False))",
    "fully_shard(model)": "fully_shard(model, offload_policy=CPUOffloadPolicy(pin_memory=False))",
}
"""What keeps the parts of a rank in the memory of its host. Without GPUs that memory cannot be pinned."""


@FULL
def test_offloading_from_cpus_to_cpus(one: Training, ranks: forked.Forked) -> None:
    """Offloading computes the same on CPUs, where it moves nothing."""
    found = train(ranks, PROGRAMS / "fsdp.py", 1, 2, edits=OFFLOADED)

    assert difference(found, one).within(EXACT, EXACT)


REFUSED = "_scaled_dot_product_flash_attention_for_cpu.default does not have a sharding strategy registered"
"""What PyTorch's own `context_parallel` says on CPUs, as the page does."""


@FULL
def test_context_parallel_of_torch_knows_gpus_only(ranks: forked.Forked) -> None:
    """PyTorch's own context parallelism stops at the attention of CPUs. If it does not, rewrite the page."""
    program = ROOT / "bench" / "ranks" / "torch_context_parallel.py"
    found = train(ranks, program, 1, 2)

    assert found.statuses == [1, 1], found.text
    assert REFUSED in found.text
    assert REFUSED in (PAGES / "context-parallel.md").read_text(encoding="utf-8")
