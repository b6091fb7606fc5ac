"""What the tests of all entries about failures do with the programs below examples/failures/."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recording_files import read_recording, recording_path
from support.comparing import Mask, compare

STACK_OF_THE_PLATFORM = re.compile(r"^\[\d\] +@ +0x")
"""A line that no program prints itself: one of a stack trace of C++."""


@dataclass(frozen=True)
class Case:
    """A program below examples/failures/.

    Args:
        program: Its path there.
        essential: What makes a line part of the comparison; every alternative has to occur.
        status: Exit status of the run: 134 is 128 and SIGABRT, 137 is 128 and SIGKILL.
        or_status: Another that it may have: gloo sometimes aborts a rank that ends.
    """

    program: str
    essential: tuple[str, ...]
    status: int = 0
    or_status: int | None = None

    def is_essential(self, line: str) -> bool:
        """Whether a line must be the same at every run."""
        return not STACK_OF_THE_PLATFORM.search(line) and any(re.search(pattern, line) for pattern in self.essential)


def check(program: Path, case: Case, reader: Any, masks: Iterable[Mask]) -> None:
    """Check that a program about a failure ends, and prints its message, as recorded."""
    (command,) = reader.commands(program)
    run = reader.run(program, command)

    assert run.status == case.status or (run.status == case.or_status and not reader.record), run.text
    for pattern in case.essential:
        assert re.search(pattern, run.text, re.MULTILINE), f"no line matches {pattern}:\n{run.text}"
    reader.compare(program, replace(run, status=case.status), case.is_essential, masks)


def check_comparison(program: Path, case: Case, masks: Sequence[Mask], old: str, new: str) -> None:
    """Check that a message of other words is a difference, even with everything masked that may vary."""
    recorded = [*filter(case.is_essential, read_recording(recording_path(program)).output)]
    changed = [line.replace(old, new) for line in recorded]

    assert compare(recorded, recorded, masks, ordered=False) is None
    assert compare(recorded, changed, masks, ordered=False) is not None
