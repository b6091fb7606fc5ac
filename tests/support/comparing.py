"""Compare what a file printed once with what it prints now."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


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

    def masked(lines: Sequence[str]) -> list[str]:
        result = []
        for line in lines:
            for mask in masks:
                line = re.sub(mask.pattern, mask.replacement, line)
            result.append(line.rstrip())
        return result if ordered else sorted(result, key=lambda line: (shape(line), decimals(line)))

    before, after = masked(recorded), masked(printed)
    same = difflib.SequenceMatcher(None, [*map(shape, before)], [*map(shape, after)], autojunk=False)
    for at, to, length in same.get_matching_blocks():
        for i in range(length):
            if close(before[at + i], after[to + i]):
                after[to + i] = before[at + i]
    difference = list(difflib.unified_diff(before, after, "recorded", "printed", lineterm=""))
    return "\n".join(difference) if difference else None
