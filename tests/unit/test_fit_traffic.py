"""The formulas for the traffic of the guide *When it does not fit*."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

BENCH = Path(__file__).resolve().parents[2] / "bench"
PARAMETERS = 4 * (12 * 64**2 + 10 * 64) + 2 * 13 * 64 + 32 * 64 + 2 * 64
"""Of four blocks with twelve square matrices, biases and norms; of both ends, the positions and the last norm."""


@pytest.fixture
def predicted(monkeypatch) -> Callable[[str, str], float]:
    """Return the formula for four ranks."""
    monkeypatch.syspath_prepend(BENCH)
    formula = importlib.import_module("helpers.fit_traffic_model").predicted_bytes
    return lambda program, library: formula(program, 4, library)


@pytest.mark.parametrize("library", ["gloo", "NCCL"])
def test_same_in_both_libraries(predicted, library):
    """DDP reduces all gradients, and the pipeline crosses three boundaries twice: over gloo as over NCCL."""
    assert predicted("ddp.py", library) == 2 * 3 / 4 * 4 * PARAMETERS
    assert predicted("pipeline.py", library) == 2 * 3 * (32 * 32 * 64 * 4) / 4


def test_reduce_scatter_of_gloo(predicted):
    """Over NCCL, FSDP gathers half of the bytes twice and reduces all once; over gloo, the second half counts twice."""
    padding = 2 * (16 - 13) * 64
    blocks = 4 * (12 * 64**2 + 10 * 64)
    gathered = 3 / 4 * (2 * 2 * blocks + 4 * (PARAMETERS + padding - blocks))
    reduced = 3 / 4 * 4 * (PARAMETERS + padding)

    assert predicted("fsdp.py", "NCCL") == gathered + reduced
    assert predicted("fsdp.py", "gloo") == gathered + 2 * reduced


@pytest.mark.parametrize("program", ["hsdp.py", "tensor_parallel.py", "fsdp_tp.py"])
def test_more_over_gloo(predicted, program):
    """Whatever reduces and scatters sends more over gloo, and at most twice as much."""
    assert predicted(program, "NCCL") < predicted(program, "gloo") < 2 * predicted(program, "NCCL")
