"""The error of this room."""

from __future__ import annotations


class DistributedError(RuntimeError):
    """JAX could not be started on all processes; the message names the variable and the line that fixes it."""
