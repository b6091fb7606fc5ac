"""The full programs of the JAX guide, and the definitions of images."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from srunbook import simulate
from srunbook.ranklog import RankEnd, parse_rank_lines
from srunbook.simulate import Result

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "jax_multinode"


TOLERANCE = 1e-3
"""Largest relative difference of a loss on one process and on many: float32 sums in another order, 40 steps on."""


def test_more_tasks_than_gpus_are_refused() -> None:
    """Two GPUs for four tasks end query_v2 with a message that has both numbers."""
    result = simulate.run([sys.executable, EXAMPLES / "query_v2.py"], nodes=1, ntasks_per_node=4, gpus_per_node=2)

    assert result.returncode == 1
    assert "ValueError: 2 GPUs cannot be shared evenly by 4 tasks on a node" in result.output


def losses(result: Result) -> np.ndarray:
    """Loss of every step on every rank: an array of shape (ranks, steps)."""
    assert result.returncode == 0, result.failure
    return np.array([re.findall(r"loss (\S+)", rank.output) for rank in result.ranks], float)


@pytest.fixture(scope="module")
def losses_on_one_process() -> np.ndarray:
    """Compute the oracle: the losses of one process that sees the whole batch."""
    program = [sys.executable, EXAMPLES / "train_data_parallel.py", "--every", "1"]
    return losses(simulate.run(program, nodes=1))[0]


def test_training_equals_one_process(losses_on_one_process: np.ndarray) -> None:
    """The same global batch gives the same losses on one process and on many, and the same parameters on every rank."""
    program = [sys.executable, EXAMPLES / "train_data_parallel.py", "--every", "1"]
    result = simulate.run(program, nodes=2, gpus_per_node=2)
    found = losses(result)
    ends = [line for line in parse_rank_lines(result.output.splitlines()) if isinstance(line, RankEnd)]

    assert found.shape[1] == 40
    np.testing.assert_allclose(found, np.broadcast_to(losses_on_one_process, found.shape), rtol=TOLERANCE)
    assert len(ends) == len(result.ranks)
    assert len({end.params for end in ends}) == 1


@pytest.mark.parametrize("name", ["jax_multinode/jax.def", "torchrun/torch.def"])
def test_image_names_its_sources_only_by_arguments(name: str) -> None:
    """The definition of an image has no host name in it, and installs the versions that the constraints pin."""
    text = (ROOT / "examples" / name).read_text(encoding="utf-8")
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    installed = re.findall(r"\b([a-z-]+)(?:\[.*?\])?==([\d.]+)", text)

    assert not re.search(r"https?://", text)
    assert re.search(r"^MirrorURL: \{\{ MIRROR \}\}$", text, re.MULTILINE)
    assert "{{ INDEX }}" in text
    assert not re.search(r"^\s*(MIRROR|INDEX)=", text, re.MULTILINE)
    assert len(installed) >= 2
    assert {f"{package}=={release}" for package, release in installed} <= set(constraints.splitlines())
