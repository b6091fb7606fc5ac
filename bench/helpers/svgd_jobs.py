"""The clusters that programs measure SVGD's steps on, and the jobs that they run there."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import jax
from helpers import program
from measurements import Configuration

import srunbook
from srunbook.cluster import State

D, WIDTH = 8, 4
"""Dimension of the particles, and bytes of a number."""

ROWS = 20
"""Genealogies in the data."""


@dataclass(frozen=True)
class Setting:
    """A cluster, and what is measured on it.

    Args:
        link: Rate of each node's link.
        nodes: Number of nodes.
        quota: Share of a CPU that each of them has.
        counts: Numbers of nodes to measure with.
        repeats: How often.
    """

    link: str
    nodes: int
    quota: float
    counts: tuple[int, ...]
    repeats: int


SETTINGS = (
    Setting("100mbit", 2, 0.9, (1, 2), 7),
    Setting("10mbit", 2, 0.9, (2,), 3),
    Setting("100mbit", 4, 0.45, (1, 2, 4), 3),
)


def job(state: State, nodes: int, *options: str) -> list[dict[str, float]]:
    """Run one job; return what each rank measured."""
    names = ",".join(f"node{n}" for n in range(1, nodes + 1))
    step = ["srun", f"--nodes={nodes}", "-w", names, "--ntasks-per-node=1", "--kill-on-bad-exit=1"]
    command = ["/home/alice/jax-env/bin/python", "-W", "ignore", "/opt/srunbook/bench/ranks/svgd_step.py", *options]
    environ = ["JAX_COMPILATION_CACHE_DIR=/home/alice/compiled", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0"]
    environ += ["PYTHONPATH=/opt/srunbook/bench"]
    begin = time.monotonic()
    step.append("--export=ALL," + ",".join(environ))
    ranks = program.printed_samples(state, step, command, nodes, timeout=300)
    print(f"  a job on {nodes} nodes took {time.monotonic() - begin:.1f} s", flush=True)
    return [rank["samples"] for rank in ranks]


def slowest(ranks: list[dict[str, float]]) -> dict[str, float]:
    """Return the largest sample of all ranks, for each quantity."""
    return {name: max(rank[name] for rank in ranks) for name in ranks[0]}


def write(path: Path, rows: list[Configuration], slurm: str, **parameters: object) -> None:
    """Write a result with what all runs of the model on this cluster share."""
    shared = {"model": "coalescent heights", "genealogies": ROWS, "d": D, "threads": 1}
    program.write(
        path,
        rows,
        versions={"srunbook": srunbook.__version__, "jax": jax.__version__, "slurm": slurm},
        parameters={**shared, "order": "in turn", "across_ranks": "maximum", **parameters},
    )
