"""Where a cluster tells what it does."""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[[str], object]
"""Be given a text: a line of progress, or what a job has printed."""


def say_nothing(_text: str) -> None:
    """Take a text and drop it."""
