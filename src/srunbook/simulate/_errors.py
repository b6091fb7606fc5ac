"""The error of this room."""

from __future__ import annotations


class SimulationError(ValueError):
    """The simulation cannot be started as asked; nothing was run and nothing written."""
