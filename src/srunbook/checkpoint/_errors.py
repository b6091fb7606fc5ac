"""The errors of this room."""

from __future__ import annotations


class CheckpointError(RuntimeError):
    """A checkpoint could not be saved, or must not be restored. What was saved before is kept."""


class DamagedError(CheckpointError):
    """A checkpoint is not what was saved: torn, truncated, altered, or put together from several."""
