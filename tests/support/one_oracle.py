"""Trainings of the guide *When it does not fit* in every layout, and how far each is from one process.

A program is run as published but for its text: it takes 20 steps, prints each loss in full, and computes in the
precision that is asked for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from support import forked

PROGRAMS = Path(__file__).resolve().parents[2] / "examples" / "does_not_fit"

IMPORTED = ("torch.distributed.checkpoint.state_dict", "torch.distributed.fsdp", "torch.distributed.pipelining")
"""What the programs import and takes a second."""

STEPS = 20

EXACT = 1e-9
"""Largest difference in float64, of a loss and of a parameter."""

SINGLE = {"loss": 1e-5, "parameters": 1e-3}
"""The same in float32. Adam makes a step of the same length however small a gradient is, rounded or not."""

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
        statuses: Exit status of each rank.
        text: All that was printed.
        losses: Loss of each step.
        parameters: The whole model at the end, by name.
    """

    statuses: list[int]
    text: str
    losses: list[float]
    parameters: dict[str, torch.Tensor]


@dataclass(frozen=True)
class Difference:
    """Largest absolute differences between two trainings: of a step's loss, and of a parameter at the end."""

    loss: float
    parameters: float

    def within(self, loss: float, parameters: float) -> bool:
        """Tell whether both are at most this large."""
        return self.loss <= loss and self.parameters <= parameters


def difference(found: Training, expected: Training) -> Difference:
    """Compare two trainings.

    Raises:
        AssertionError: A training failed, took another number of steps, or has parameters of other names or shapes.
    """
    for each in (found, expected):
        assert not any(each.statuses), each.text
        assert len(each.losses) == STEPS, each.text
    shapes = [{name: value.shape for name, value in each.parameters.items()} for each in (found, expected)]
    assert shapes[0] == shapes[1]
    losses = [abs(one - other) for one, other in zip(found.losses, expected.losses, strict=True)]
    parameters = [float((found.parameters[name] - value).abs().max()) for name, value in expected.parameters.items()]
    return Difference(max(losses), max(parameters))


def train(
    ranks: forked.Forked,
    program: Path,
    nodes: int,
    processes: int,
    *arguments: object,
    dtype: str = "float64",
    edits: dict[str, str] | None = None,
    before: str = "",
    steps: int = STEPS,
    environ: dict[str, str] | None = None,
) -> Training:
    """Run a program on `nodes` x `processes` ranks, each in one precision, with some of its text replaced.

    What runs `before` it is Python as well.
    """
    folder = ranks.new_folder()
    folder.mkdir()
    text = program.read_text(encoding="utf-8")
    own = IN_FULL | {"STEPS = 40\n": f"STEPS = {steps}\n"}
    for old, new in ((edits or {}) | (own if program.parent == PROGRAMS else {})).items():
        assert text.count(old) == 1, (program.name, old)
        text = text.replace(old, new)
    copy = folder / program.name
    copy.write_text(text, encoding="utf-8")
    first = f"import os; os.chdir({str(folder)!r})\n{ONE_PRECISION.format(dtype=dtype)}{before}"
    ended = ranks.run(
        [str(copy), *map(str, arguments)],
        nodes=nodes,
        processes=processes,
        before=first,
        environ=environ or {},
    )
    outcome = forked.Outcome(ended, folder)
    losses = [float(loss) for loss in re.findall(r"^step \d+: loss (\S+)$", outcome.text, re.MULTILINE)]
    parameters: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("model*.pt")):
        parameters |= torch.load(path, weights_only=True)
    return Training(outcome.statuses, outcome.text, losses, parameters)
