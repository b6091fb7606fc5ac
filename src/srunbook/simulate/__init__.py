"""Run several processes on this machine, each with the environment that srun gives to a task.

    >>> from srunbook import simulate
    >>> result = simulate.run(["sh", "-c", "echo node $SLURM_NODEID"], nodes=2, ntasks_per_node=1)
    >>> print(result.output)
    [0] node 0
    [1] node 1

The simulation is not a scheduler: it has no queue and no allocations, and does not limit what a process uses.
"""

from __future__ import annotations

from srunbook.simulate._checks import SimulationError
from srunbook.simulate._environment import GENERATIONS
from srunbook.simulate._run import RankResult, Result, run

__all__ = ["GENERATIONS", "RankResult", "Result", "SimulationError", "run"]
