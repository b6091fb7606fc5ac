"""The two ways in which reading Slurm's words can fail."""

from __future__ import annotations


class SlurmParseError(ValueError):
    """A text does not have the form that Slurm gives it.

    Args:
        what: What the text should have been, as in `host list`.
        text: The text.
        position: Index of the character, from 0, at which reading stopped.
        problem: What is wrong there.
        example: A text of the right form.
    """

    def __init__(self, what: str, text: str, position: int, problem: str, example: str) -> None:
        super().__init__(
            f"{what} {_short(text)!r}: {_short(problem)} at character {position + 1}; it reads like {example!r}"
        )
        self.text = text
        self.position = position


def _short(text: str) -> str:
    return text if len(text) <= 110 else f"{text[:77]}...{text[-30:]}"


class NotInStepError(RuntimeError):
    """The process was not started by srun, so Slurm has not told it its rank."""
