"""How the start of JAX on several processes fails."""

from __future__ import annotations


class DistributedError(RuntimeError):
    """JAX was not started on all processes; the message names the variable and the line that mends it."""
