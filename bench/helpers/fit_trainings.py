"""Trainings of the guide *When it does not fit* in every layout, and how far each is from one process.

A program is run as published but for its text: it takes fewer steps, prints each loss in full, and computes in the
precision that is asked for.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

PROGRAMS = Path(__file__).resolve().parents[2] / "examples" / "does_not_fit"
STEPS = 20
SECONDS = 400
"""How long a training may take: eight ranks may share one core."""

IN_FULL = {"if step % 10 == 0": "if True", ":.6f}": ":.17g}"}
"""What is replaced in the text of each program of the guide."""

ONE_PRECISION = """
import torch
import torch.distributed.fsdp as fsdp
torch.set_default_dtype(torch.{dtype})
Policy = fsdp.MixedPrecisionPolicy
fsdp.MixedPrecisionPolicy = lambda *_, **__: Policy()
"""
"""What a rank runs first: everything in one precision, and none of them mixed."""


@dataclass(frozen=True)
class Training:
    """What came of a program.

    Args:
        text: All that was printed.
        losses: Loss of each step.
        parameters: The whole model at the end, by name.
    """

    text: str
    losses: list[float]
    parameters: dict[str, Any]


def edited(program: Path, edits: Mapping[str, str]) -> str:
    """Return the text of a program with parts replaced that occur once in it."""
    text = program.read_text(encoding="utf-8")
    for old, new in edits.items():
        if text.count(old) != 1:
            raise ValueError(f"{program.name} has {old!r} {text.count(old)} times")
        text = text.replace(old, new)
    return text


def farthest(
    losses: Sequence[float], found: Mapping[str, Any], one_loss: Sequence[float], one: Mapping[str, Any]
) -> tuple[float, float]:
    """Return the largest absolute differences between two trainings: of a loss, and of a parameter at the end."""
    if {name: value.shape for name, value in found.items()} != {name: value.shape for name, value in one.items()}:
        raise ValueError("the two have other parameters")
    parameters = max(float(abs(found[name] - value).max()) for name, value in one.items())
    return max(abs(loss - other) for loss, other in zip(losses, one_loss, strict=True)), parameters


def difference(found: Training, one: Training) -> tuple[float, float]:
    """Return how far a training is from another, in its losses and in its parameters."""
    return farthest(found.losses, found.parameters, one.losses, one.parameters)


def run_ranks(text: str, arguments: Sequence[object], nodes: int, processes: int, folder: Path) -> str:
    """Run a program on `nodes` x `processes` ranks, as torchrun would; return what all of them printed.

    Raises:
        RuntimeError: A rank failed.
        subprocess.TimeoutExpired: One never ended.
    """
    program = folder / "program.py"
    program.write_text(text, encoding="utf-8")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "PYTHONPATH": str(PROGRAMS)}
    shared |= {"WORLD_SIZE": str(nodes * processes), "LOCAL_WORLD_SIZE": str(processes), "SLURM_NNODES": str(nodes)}
    ranks = []
    for rank in range(nodes * processes):
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank % processes), "OMP_NUM_THREADS": "1"}
        with (folder / f"rank{rank}.txt").open("w") as output:
            ranks.append(
                subprocess.Popen(
                    [sys.executable, program, *map(str, arguments)],
                    cwd=folder,
                    env=os.environ | shared | place,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )
    try:
        statuses = [rank.wait(SECONDS) for rank in ranks]
    finally:
        for process in ranks:
            process.kill()
    printed = "\n".join((folder / f"rank{rank}.txt").read_text(encoding="utf-8") for rank in range(len(ranks)))
    if any(statuses):
        raise RuntimeError(f"the ranks ended with {statuses}:\n{printed}")
    return printed


def train(
    program: Path,
    nodes: int,
    processes: int,
    *arguments: object,
    dtype: str = "float64",
    edits: Mapping[str, str] | None = None,
    before: str = "",
    steps: int = STEPS,
) -> Training:
    """Run a program on `nodes` x `processes` ranks, each in one precision, with some of its text replaced.

    What runs `before` it is Python as well.
    """
    shared = IN_FULL | {"STEPS = 40\n": f"STEPS = {steps}\n"} if program.parent == PROGRAMS else {}
    first = ONE_PRECISION.format(dtype=dtype) + before
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = run_ranks(first + edited(program, {**(edits or {}), **shared}), arguments, nodes, processes, folder)
        losses = [float(loss) for loss in re.findall(r"^step \d+: loss (\S+)$", text, re.MULTILINE)]
        parameters: dict[str, Any] = {}
        for path in sorted(folder.glob("model*.pt")):
            parameters |= torch.load(path, weights_only=True)
        for path in folder.glob("trained/*.safetensors"):
            parameters |= load_file(path)
    return Training(text, losses, parameters)
