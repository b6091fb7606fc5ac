"""What the tests of all entries about failures do with the programs below examples/failures/."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from support.reader import Reader

from recordings.comparing import Mask


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
        return any(re.search(pattern, line) for pattern in self.essential)


def check(program: Path, case: Case, reader: Reader, masks: Iterable[Mask]) -> None:
    """Check that a program about a failure ends, and prints its message, as recorded."""
    (command,) = reader.commands(program)
    run = reader.run(program, command)

    assert run.exit_code in (case.status, case.or_status), run.text
    for pattern in case.essential:
        assert re.search(pattern, run.text, re.MULTILINE), f"no line matches {pattern}:\n{run.text}"
    reader.compare(program, replace(run, exit_code=case.status), case.is_essential, masks)
