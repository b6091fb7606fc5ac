"""Time each process alone: within a step all wait for the slowest, and so look alike."""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-call"
import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import Array

from srunbook.svgd._result import ProcessTiming
from srunbook.svgd._target import Target

HOST_BYTES = 64
"""So many bytes of a node's name are exchanged."""


class Clock:
    """Times the scores of each process at every report, and logs them.

    Args:
        target: The distribution.
        path: The log, to which process 0 appends a JSON object for each process and report.
    """

    def __init__(self, target: Target, path: Path) -> None:
        self.target = target
        self.path = path
        self.hosts = _hosts(os.environ.get("SLURMD_NODENAME") or socket.gethostname())
        self.samples: list[list[float]] = [[] for _ in self.hosts]
        self._scores = jax.jit(target.scores)

    def take(self, step: int, particles: Array, data: Any) -> None:
        """Take one sample of each process, in seconds, and write them down; all processes call this.

        Args:
            step: The step that the run has reached.
            particles: The particles, shape (padded, d).
            data: The data of the target.
        """
        shards = [shard.data for shard in particles.addressable_shards]
        batch = self.target.batch(data, jax.random.key(0), jax.numpy.int32(step))
        if not self.samples[0]:
            seconds_of(self._scores, shards, batch)  # compiles
        seconds = seconds_of(self._scores, shards, batch)
        if jax.process_count() > 1:
            from jax.experimental import multihost_utils

            taken = multihost_utils.process_allgather(np.float32(seconds)).reshape(-1)
        else:
            taken = np.array([seconds])
        for samples, value in zip(self.samples, taken, strict=True):
            samples.append(float(value))
        if jax.process_index() == 0:
            rows = [
                json.dumps({"step": step, "process": number, "host": host, "score_seconds": round(float(value), 7)})
                for number, (host, value) in enumerate(zip(self.hosts, taken, strict=True))
            ]
            with self.path.open("a", encoding="utf-8") as log:
                log.write("\n".join(rows) + "\n")

    def timings(self) -> tuple[ProcessTiming, ...]:
        """Return all samples so far, by process."""
        return tuple(
            ProcessTiming(number, host, tuple(samples))
            for number, (host, samples) in enumerate(zip(self.hosts, self.samples, strict=True))
        )


def seconds_of(scores: Callable[[Array, Any], Array], shards: list[Array], batch: Any) -> float:
    """Return the seconds that the scores of this process's shards take."""
    start = time.perf_counter()
    jax.block_until_ready([scores(shard, batch) for shard in shards])
    return time.perf_counter() - start


def _hosts(own: str) -> list[str]:
    """Exchange the names of the nodes; return those of all processes, in their order."""
    if jax.process_count() == 1:
        return [own]
    from jax.experimental import multihost_utils

    padded = np.frombuffer(own.encode()[:HOST_BYTES].ljust(HOST_BYTES, b"\0"), np.uint8)
    return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in multihost_utils.process_allgather(padded)]
