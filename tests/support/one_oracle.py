"""Trainings of the guide *When it does not fit* in every layout, and how far each is from one process.

A program is run as published but for its text: it takes fewer steps, prints each loss in full, and computes in the
precision that is asked for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from support import forked
from support.programs import edited

from recordings.comparing import Difference, farthest

PROGRAMS = Path(__file__).resolve().parents[2] / "examples" / "does_not_fit"

IMPORTED = ("torch.distributed.checkpoint.state_dict", "torch.distributed.fsdp", "torch.distributed.pipelining")
"""What the programs import and takes a second."""

STEPS = 20

FEWER_STEPS = 6
"""Of tests without `--full`; the benchmarks and the page have all."""

EXACT = 1e-9
"""Largest difference in float64, of a loss and of a parameter."""


IN_FULL = {"if step % 10 == 0": "if True", ":.6f}": ":.17g}"}
"""What is replaced in the text of each program of the guide."""

LAST_LAYER = "nn.Linear(WIDTH, len(CHARACTERS), bias=False))\n"
TIE = "    model[-1].weight = model[0].characters.weight\n"
TIED = {"    return nn.Sequential(": "    model = nn.Sequential(", LAST_LAYER: f"{LAST_LAYER}{TIE}    return model\n"}
"""What makes the last layer share its weights with the first."""

TIED_LATER = {"OUTER)\n": f"OUTER)\n{TIE}"}
"""What does so after `parallelize_module`."""

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


def difference(found: Training, expected: Training) -> Difference:
    """Compare two trainings.

    Raises:
        AssertionError: A training failed, took another number of steps, or has parameters of other names or shapes.
    """
    for each in (found, expected):
        assert not any(each.statuses), each.text
        assert len(each.losses) == len(expected.losses) > 1, each.text
    return farthest(zip(found.losses, expected.losses, strict=True), found.parameters, expected.parameters)


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
    own = IN_FULL | {"STEPS = 40\n": f"STEPS = {steps}\n"}
    copy = edited(program, folder, ((edits or {}) | (own if program.parent == PROGRAMS else {})).items())
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
