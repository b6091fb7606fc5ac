"""Trainings of the JAX programs of the guide *When it does not fit*, on any mesh, and how far two are from each other.

A program is run as published but for its text: it takes fewer steps, prints each loss in full, and computes in the
precision that is asked for.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from helpers.fit_trainings import PROGRAMS, SECONDS, STEPS, Training, edited

from srunbook import simulate

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


def train(
    folder: Path,
    name: str,
    mesh: str,
    *,
    processes: int = 1,
    devices: int = 1,
    dtype: str = "float64",
    edits: Mapping[str, str] | None = None,
) -> Training:
    """Run a program of the guide in a folder, on processes with some devices each and in one precision.

    Args:
        folder: Where it runs, and where its checkpoints may lie.
        name: The program.
        mesh: Its option `--mesh`.
        processes: Number of processes, one on each node.
        devices: Devices of each.
        dtype: `float64` or `float32`.
        edits: Further text to replace, each occurring once.

    Raises:
        RuntimeError: It failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shared = {"STEPS = 40\n": f"STEPS = {STEPS}\n", "import jax\n": FIRST.format(dtype == "float64")}
    program = folder / name
    program.write_text(edited(PROGRAMS / name, {**IN_FULL, **(edits or {}), **shared}), encoding="utf-8")
    gpus = devices if devices > 1 else 0  # a single device needs none
    with contextlib.chdir(folder):
        argv = [sys.executable, program, "--mesh", mesh]
        result = simulate.run(argv, nodes=processes, gpus_per_node=gpus, timeout=SECONDS)
    if result.returncode != 0:
        raise RuntimeError(result.failure)
    losses = [float(loss) for loss in re.findall(r"step \d+: loss (\S+)$", result.output, re.MULTILINE)]
    (model,) = folder.glob("model*.npz")
    return Training(result.output, losses, dict(np.load(model)))
