"""Compare what a file printed once with what it prints now, and two trainings with each other."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mask:
    """Something that may vary between two runs of the same file.

    Args:
        pattern: Regular expression of what varies.
        replacement: What stands for it in a comparison.
        reason: Why it may vary.
    """

    pattern: str
    replacement: str
    reason: str


RANK_LINE = (
    Mask(r"\bhost=\S+", "host=<name>", "each machine has its own name, and any may get rank 0"),
    Mask(r"\bpid=\d+", "pid=<pid>", "a fresh number for each process"),
    Mask(r"\bjob=\d+", "job=<id>", "a fresh number for each job"),
    Mask(r"\bparams=\w+", "params=<hash>", "processors round in different ways"),
    Mask(r"\bloss=[\d.]+", "loss=<n>", "processors round in different ways"),
)
"""Of the lines that a rank prints at its start and its end."""

LIGHTNING_EPOCH = (
    Mask(r"\d+ samples/s", "<n> samples/s", "machines are not equally fast"),
    Mask(r"((?:train|val)_(?:loss|accuracy)) [\d.]+%?", r"\1 <n>", "processors round in different ways"),
)
"""Of the lines that the full programs of the Lightning guide print for each epoch."""

LOSS = Mask(r"\bloss [\d.]+", "loss <n>", "processors round in different ways")

DECIMAL = re.compile(r"(?<![\w.])[-+]?\d+\.\d+(?:[eE][-+]?\d+)?(?!\.?\d)")
"""A number with a fraction: not a version, an address, or a count, which have to be the same."""

TOLERANCE = 0.01
"""By how much such numbers may differ, relative to the larger: processors and libraries round in different ways."""


def decimals(line: str) -> list[float]:
    """Return the numbers with a fraction in a line.

    >>> decimals("step 40 of torch 2.13.0 at 10.77.0.3: loss -1.25, rate 1.0e-3, 3.5s")
    [-1.25, 0.001, 3.5]
    """
    return [float(text) for text in DECIMAL.findall(line)]


def shape(line: str) -> str:
    """Return a line without its numbers with a fraction."""
    return DECIMAL.sub("<number>", line)


def close(one: str, other: str) -> bool:
    """Whether two lines of the same shape agree, their numbers within the tolerance."""
    return all(math.isclose(a, b, rel_tol=TOLERANCE) for a, b in zip(decimals(one), decimals(other), strict=True))


def masked(line: str, masks: Iterable[Mask]) -> str:
    """Return a line without what may vary."""
    for mask in masks:
        line = re.sub(mask.pattern, mask.replacement, line)
    return line


def compare(
    recorded: Sequence[str], printed: Sequence[str], masks: Iterable[Mask] = (), *, ordered: bool = True
) -> str | None:
    r"""Compare a recorded output with that of a new run. Numbers with a fraction may differ by 1 %.

    Args:
        recorded: Lines of the recording.
        printed: Lines of the new run.
        masks: What may vary.
        ordered: False where ranks may print in any order: both sides are sorted.

    Returns:
        None where they agree, else a unified diff of the masked lines.

    >>> compare(["job 17 done"], ["job 18 done"], [Mask(r"job \d+", "job <id>", "a fresh id each time")])
    >>> print(compare(["y=[8.]"], ["y=[7.]"]))
    --- recorded
    +++ printed
    @@ -1 +1 @@
    -y=[8.]
    +y=[7.]
    >>> compare(["loss 0.2948"], ["loss 0.2949"])
    """
    masks = list(masks)
    before, after = ([masked(line, masks).rstrip() for line in lines] for lines in (recorded, printed))
    if not ordered:
        for lines in (before, after):
            lines.sort(key=lambda line: (shape(line), decimals(line)))
    same = difflib.SequenceMatcher(None, [*map(shape, before)], [*map(shape, after)], autojunk=False)
    for at, to, length in same.get_matching_blocks():
        for i in range(length):
            if close(before[at + i], after[to + i]):
                after[to + i] = before[at + i]
    difference = list(difflib.unified_diff(before, after, "recorded", "printed", lineterm=""))
    return "\n".join(difference) if difference else None


@dataclass(frozen=True)
class Difference:
    """Largest absolute differences between two trainings: of a step's loss, and of a parameter at the end."""

    loss: float
    parameters: float

    def within(self, loss: float, parameters: float) -> bool:
        """Tell whether both are at most this large."""
        return self.loss <= loss and self.parameters <= parameters


def farthest(
    losses: Iterable[tuple[float, float]], found: Mapping[str, Any], expected: Mapping[str, Any]
) -> Difference:
    """Return how far two trainings are from each other.

    Args:
        losses: The losses of both after each step.
        found: Parameters of the one, as arrays of torch or NumPy, by name.
        expected: Those of the other, of the same names and shapes.
    """
    shapes = [{name: value.shape for name, value in parameters.items()} for parameters in (found, expected)]
    assert shapes[0] == shapes[1]
    parameters = [float(abs(found[name] - value).max()) for name, value in expected.items()]
    return Difference(max(abs(one - other) for one, other in losses), max(parameters))
