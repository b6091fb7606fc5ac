"""Compare what a file printed once with what it prints now."""

from __future__ import annotations

import difflib
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


def compare(
    recorded: Sequence[str], printed: Sequence[str], masks: Iterable[Mask] = (), *, ordered: bool = True
) -> str | None:
    r"""Compare a recorded output with that of a new run.

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
    """
    masks = list(masks)

    def masked(lines: Sequence[str]) -> list[str]:
        result = []
        for line in lines:
            for mask in masks:
                line = re.sub(mask.pattern, mask.replacement, line)
            result.append(line.rstrip())
        return result if ordered else sorted(result)

    difference = list(difflib.unified_diff(masked(recorded), masked(printed), "recorded", "printed", lineterm=""))
    return "\n".join(difference) if difference else None
