"""One run: the compiled loop in pieces, with reports, times of each process, checkpoints and stops between them."""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-call"
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.experimental import multihost_utils

from srunbook.signals import StopSignal
from srunbook.svgd.checkpoints import fetch_state, place_state, restore, save
from srunbook.svgd.devices import Layout, compare_processes, digest, to_host
from srunbook.svgd.results import Floats, ProcessTiming, SVGDError, SVGDResult
from srunbook.svgd.steps import UNCONSTRAINED, Settings, Target, count_infinite


class Clock:
    """Times the scores of each process alone, at every report: within a step all wait for the slowest one.

    Process 0 appends a JSON object for each process and report to the log at `path`.
    """

    def __init__(self, target: Target, path: str | os.PathLike[str]) -> None:
        self.target = target
        self.path = Path(path)
        host = (os.environ.get("SLURMD_NODENAME") or socket.gethostname()).encode()[:64].ljust(64, b"\0")
        rows = multihost_utils.process_allgather(np.frombuffer(host, np.uint8))
        self.hosts = [bytes(row).rstrip(b"\0").decode(errors="replace") for row in rows]
        self.samples: list[list[float]] = [[] for _ in self.hosts]
        self._scores = jax.jit(target.values_and_scores)

    def take(self, step: int, particles: Array, data: Any) -> None:
        """Time the scores of particles, shape (padded, d), once, and log the seconds; all processes call this."""
        shards = [shard.data for shard in particles.addressable_shards]
        batch = self.target.batch(data, jax.random.key(0), step)
        if not self.samples[0]:  # compiles
            jax.block_until_ready([self._scores(shard, batch) for shard in shards])
        start = time.perf_counter()
        jax.block_until_ready([self._scores(shard, batch) for shard in shards])
        taken = multihost_utils.process_allgather(np.float32(time.perf_counter() - start))
        rows = []
        for number, (host, seconds) in enumerate(zip(self.hosts, map(float, taken), strict=True)):
            self.samples[number].append(seconds)
            row = {"step": step, "process": number, "host": host, "score_seconds": round(seconds, 7)}
            rows.append(json.dumps(row) + "\n")
        if jax.process_index() == 0:
            with self.path.open("a", encoding="utf-8") as log:
                log.writelines(rows)

    def timings(self) -> tuple[ProcessTiming, ...]:
        """Return all samples so far, by process."""
        return tuple(
            ProcessTiming(number, host, tuple(samples))
            for number, (host, samples) in enumerate(zip(self.hosts, self.samples, strict=True))
        )


@dataclass
class Run:
    """One call of `SVGD.run`, which has checked the arguments and describes those without a word here."""

    settings: Settings
    data: Any
    compiled: Callable[[Layout, int], Callable[..., Any]]  # gives the compiled loop of so many steps
    key: Array
    start: Floats  # the particles to start from, shape (n, d)
    n_steps: int
    every: int
    checkpoint: str | os.PathLike[str] | None = None
    stop: StopSignal | None = None
    timing_log: str | os.PathLike[str] | None = None
    progress: bool = False

    def __post_init__(self) -> None:
        """Compare the processes, and place the particles or those of a checkpoint."""
        self.began = time.perf_counter()
        n, dim = self.start.shape
        bandwidth = self.settings.bandwidth
        self.identity: dict[str, Any] = {  # devices and processes may change at a restart
            "particles": n,
            "dim": dim,
            "key": np.asarray(jax.random.key_data(self.key)).tolist(),
            "kernel": self.settings.kernel,
            "bandwidth": "a function" if callable(bandwidth) else bandwidth,
            "batch_size": self.settings.target.batch_size,
            "data": digest(self.data).tobytes().hex(),
        }
        requested = {name: getattr(self, name) is not None for name in ("checkpoint", "stop", "timing_log")}
        counts = {"n_steps": self.n_steps, "every": self.every, "progress": self.progress}
        passed = self.identity | requested | counts | {"initial particles": self.start}
        compare_processes(passed)
        if not (self.progress or any(requested.values())):
            self.every = max(self.n_steps, 1)
        self.layout = Layout(n, self.settings.mesh)
        self.batch_key = jax.random.fold_in(self.key, 2)
        self.pairs = self.settings.pairs(self.key, n)
        self.infinite = count_infinite(self.settings.target, self.layout)
        self.clock = Clock(self.settings.target, self.timing_log) if self.timing_log is not None else None
        self.step = 0
        arrays: dict[str, Any] = {"particles": self.start}
        if self.checkpoint is not None:
            self.step, arrays = restore(self.checkpoint, self.identity, self.n_steps) or (0, arrays)
        self.state = place_state(self.settings.optimizer, self.layout, arrays)

    def finish(self) -> SVGDResult:
        """Compute until all steps are made, or a signal stops the run."""
        first, stopped = self.step, False
        empty: Floats = np.zeros(0, self.start.dtype)
        traces: list[tuple[Floats, Floats]] = [(empty, empty)]
        while self.step < self.n_steps and not stopped:
            length = min(self.n_steps - self.step, self.every - self.step % self.every)
            before = time.perf_counter()
            traces.append(self.advance(length))
            if self.clock:
                self.clock.take(self.step, self.state[0], self.data)
            if self.progress and jax.process_index() == 0:
                self._report(traces[-1], (time.perf_counter() - before) / length)
            if self.stop is not None and self.step < self.n_steps:
                stopped = self.stop.requested()
            if self.checkpoint is not None:
                arrays = fetch_state(self.settings.optimizer, self.layout, self.state)
                save(self.checkpoint, self.step, arrays, self.identity)
        particles = to_host(self.state[0])[: self.layout.n]
        bandwidths, phi_rms = (np.concatenate(parts) for parts in zip(*traces, strict=True))
        return SVGDResult(
            particles=particles,
            steps=self.step,
            first_step=first,
            bandwidths=bandwidths,
            phi_rms=phi_rms,
            seconds=time.perf_counter() - self.began,
            stopped=stopped,
            timings=self.clock.timings() if self.clock else (),
        )

    def advance(self, length: int) -> tuple[Floats, Floats]:
        """Make some steps; return their bandwidths and root mean square lengths of the direction, each (length,).

        Raises:
            SVGDError: A log density, a score, a direction or a bandwidth is not finite.
        """
        program = self.compiled(self.layout, length)
        self.state, trace = program(self.state, np.int32(self.step), self.data, self.pairs, self.batch_key)
        bandwidths, phi_rms, wrong = map(to_host, trace)
        impossible = (wrong > 0) | ~np.isfinite(phi_rms) | ~np.isfinite(bandwidths) | ~(bandwidths > 0)
        if impossible.any():
            at = int(np.argmax(impossible))
            self.step += at
            problem = self._density() if wrong[at] else self._direction(float(bandwidths[at]))
            raise SVGDError(f"step {self.step + 1}: {problem}")
        self.step += length
        if to_host(self.infinite(self.state[0], self.data, self.batch_key, np.int32(self.step))):
            raise SVGDError(f"after step {self.step}: {self._density()}")
        return bandwidths, phi_rms

    def _density(self) -> str:
        """Say where a log density or score is not finite."""
        x = to_host(self.state[0])[: self.layout.n]
        target = self.settings.target
        problem = target.checked_scores(x, target.batch(self.data, self.batch_key, self.step))[1]
        # Compiled in another way, a number that nearly overflows may be finite.
        return problem or f"log densities or scores are not finite. {UNCONSTRAINED}"

    def _direction(self, bandwidth: float) -> str:
        """Say why the direction is not finite though all scores are."""
        if 0 < bandwidth < float("inf"):
            return f"the direction is not finite, though scores are: they are too large. {UNCONSTRAINED}"
        return f"the bandwidth is {bandwidth} in {self.state[0].dtype}; it is a squared length, larger than 0"

    def _report(self, trace: tuple[Floats, Floats], seconds: float) -> None:
        """Print the line of a report; one step took some seconds."""
        duration = f"{1e3 * seconds:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"
        line = f"step {self.step} of {self.n_steps}: direction {trace[1][-1]:.3g}, bandwidth {trace[0][-1]:.3g}"
        sys.stdout.write(f"{line}, {duration} a step\n")
        sys.stdout.flush()
