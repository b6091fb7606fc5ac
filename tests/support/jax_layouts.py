"""Trainings of the JAX programs of the guide *When it does not fit*, on any mesh, and how far two are from each other.

A program is run as published but for its text: it takes fewer steps, prints each loss in full, and computes in the
precision that is asked for.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from support.patience import PATIENCE
from support.programs import edited

from recordings.comparing import Difference, farthest
from srunbook import simulate

PROGRAMS = Path(__file__).resolve().parents[2] / "examples" / "does_not_fit"

STEPS = 20

EXACT = 1e-9
"""Largest difference in float64, of a loss and of a parameter."""


IN_FULL = {
    "LAYERS = 64, 4, 4\n": "LAYERS = 64, 4, 2\n",
    "if step % 10 == 0": "if True",
    "{loss:.6f}": "{float(loss)!r}",
}
"""What is replaced in the text of each program; each layer takes as many exchanges between devices as another."""

FIRST = """import jax

jax.config.update("jax_enable_x64", {})
jax.config.update("jax_disable_most_optimizations", True)
"""
"""What a process runs first: one precision for everything, and half of the time to compile."""

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Training:
    """What came of a program.

    Args:
        status: Exit status of the simulation.
        text: All that was printed.
        losses: Loss of each step, by its number.
        parameters: The whole model at the end, by name; empty where it was not written.
    """

    status: int
    text: str
    losses: dict[int, float]
    parameters: Arrays


def difference(found: Training, expected: Training) -> Difference:
    """Compare two trainings, by the steps that both took.

    Raises:
        AssertionError: A training failed, took no step of the other, or has parameters of other names or shapes.
    """
    for each in (found, expected):
        assert each.status == 0, each.text
        assert max(each.losses) == max(expected.losses) > 1, each.text
    losses = ((loss, expected.losses[step]) for step, loss in found.losses.items())
    return farthest(losses, found.parameters, expected.parameters)


def losses_of(text: str) -> dict[int, float]:
    """Return the losses that a program printed, by step."""
    found = re.findall(r"step (\d+): loss (\S+)$", text, re.MULTILINE)
    return {int(step): float(loss) for step, loss in found}


def train(
    folder: Path,
    name: str,
    mesh: str,
    *,
    processes: int = 1,
    devices: int = 1,
    dtype: str = "float64",
    edits: dict[str, str] | None = None,
    steps: int = STEPS,
) -> Training:
    """Run a program of the guide in a folder, on processes with some devices each and in one precision.

    Args:
        folder: Where it runs, and where its checkpoints may lie.
        name: The program.
        mesh: What it is told of its mesh.
        processes: Number of processes, one on each node.
        devices: Devices of each.
        dtype: `float64` or `float32`.
        edits: Further text to replace, each occurring once.
        steps: How many it takes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    own = {"STEPS = 40\n": f"STEPS = {steps}\n", "import jax\n": FIRST.format(dtype == "float64")}
    replaced = IN_FULL | (edits or {}) | own
    program = edited(PROGRAMS / name, folder, replaced.items())
    for left in folder.glob("model*.npz"):
        left.unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        argv = [sys.executable, program, "--mesh", mesh]
        gpus = devices if devices > 1 else 0  # a single device needs none
        result = simulate.run(argv, nodes=processes, gpus_per_node=gpus, timeout=PATIENCE)
    parameters = {name: value for model in folder.glob("model*.npz") for name, value in np.load(model).items()}
    return Training(result.returncode, result.output, losses_of(result.output), parameters)
