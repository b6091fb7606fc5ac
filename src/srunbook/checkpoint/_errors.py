"""The errors of this room, and how they name what was found."""

from __future__ import annotations

from typing import Any


class CheckpointError(RuntimeError):
    """A checkpoint could not be saved, or must not be restored. What was saved before is kept."""


class DamagedError(CheckpointError):
    """A checkpoint is not what was saved: torn, truncated, altered, or put together from several."""


def short(value: Any) -> str:
    """Return the representation of a value that may be of any size, cut off after some characters.

    >>> short("x" * 1000)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."
    """
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:70]}..."


def plain(name: str) -> str:
    r"""Return a name as it is, or its representation if it would not fit into a line.

    >>> plain("layer.0.weight"), plain("a\nb")
    ('layer.0.weight', "'a\\nb'")
    """
    return name if name.isprintable() and len(name) <= 80 else short(name)
