"""What a cluster tells: what went wrong, by whose turn it is, and how far it is."""

from __future__ import annotations

from collections.abc import Callable


class ClusterError(Exception):
    """The cluster cannot do what was asked; the message says why and what to do."""


class SpecificationError(ClusterError):
    """The request is not possible: the message gives the value found, what is allowed and an example."""


Say = Callable[[str], object]
"""Be given a text: a line of progress, or what a job has printed."""


def say_nothing(_text: str) -> None:
    """Take a text and drop it."""
