"""The error that a wrong specification raises."""

from __future__ import annotations

from collections.abc import Iterable


class JobError(ValueError):
    """A job specification is wrong; each problem names the place, the value and what is allowed.

    Args:
        problems: One sentence or two for each.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))
