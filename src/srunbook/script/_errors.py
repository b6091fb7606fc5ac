"""The error for a job script that cannot be read."""

from __future__ import annotations


class ScriptError(ValueError):
    """A job script says something that sbatch refuses, or that cannot be understood.

    Args:
        line: The line, from 1.
        problem: What was found, what was expected, and what to do.
    """

    def __init__(self, line: int, problem: str) -> None:
        self.line = line
        self.problem = problem
        super().__init__(f"line {line}: {problem}")
