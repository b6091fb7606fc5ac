"""What can be wrong before anything is started."""

from __future__ import annotations


class SimulationError(ValueError):
    """The simulation cannot be started as asked; nothing was run and nothing written."""
