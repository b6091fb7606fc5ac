"""One run: the compiled loop in pieces, with reports, checkpoints and stops between them."""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-call"
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import Array

from srunbook.signals import StopSignal
from srunbook.svgd._agreement import agree_on_progress
from srunbook.svgd._finite import UNCONSTRAINED, describe
from srunbook.svgd._kernel import warn_of_rounding
from srunbook.svgd._layout import Layout, to_host
from srunbook.svgd._program import Program, Settings, count_infinite, densities_over, pairs_for_median
from srunbook.svgd._result import Floats, SVGDError, SVGDResult
from srunbook.svgd._saved import restore, save
from srunbook.svgd._state import fresh_state, restored_state, state_tensors
from srunbook.svgd._timing import Clock


@dataclass(frozen=True)
class Request:
    """What a call of `SVGD.run` asks for; `SVGD` has checked it.

    Args:
        key: The random key.
        start: The particles to start from, shape (n, d).
        n_steps: Number of steps in all.
        every: Steps between two reports.
        checkpoint: Directory of checkpoints, or None.
        stop: The stop signal, or None.
        timing_log: File for the times of the processes, or None.
        progress: Whether process 0 prints a line at every report; what the others are given does not matter.
    """

    key: Array
    start: Floats
    n_steps: int
    every: int
    checkpoint: str | os.PathLike[str] | None = None
    stop: StopSignal | None = None
    timing_log: str | os.PathLike[str] | None = None
    progress: bool = False


class Run:
    """One call of `SVGD.run`, at its first step or at that of a checkpoint.

    Args:
        settings: The settings.
        data: The data of the target.
        compiled: Gives the compiled loop for a layout and a number of steps.
        request: What is asked for.

    Raises:
        SVGDError: The processes were not given the same, or the checkpoint is of another run, has more steps, or cannot
            be read.
    """

    def __init__(
        self, settings: Settings, data: Any, compiled: Callable[[Layout, int], Program], request: Request
    ) -> None:
        self.began = time.perf_counter()
        self.settings = settings
        self.data = data
        self.compiled = compiled
        self.request = request
        self.mesh = settings.mesh
        self.layout = settings.layout(len(request.start))
        self.batch_key = jax.random.fold_in(request.key, 2)
        self.infinite = count_infinite(settings, self.layout)
        self.progress = agree_on_progress(
            settings, data, request.key, request.start, _arguments(settings, request), progress=request.progress
        )
        pauses = self.progress or request.checkpoint or request.stop or request.timing_log
        self.every = request.every if pauses else None
        self.described = _plain(settings, request)
        self.clock = Clock(settings.target, Path(request.timing_log)) if request.timing_log else None
        self.pairs = pairs_for_median(settings, request.key, self.layout.n)
        self.step = 0
        self.state = fresh_state(settings, self.layout, request.start)
        if request.checkpoint and (found := restore(request.checkpoint, self.described, request.n_steps)):
            self.step, tensors = found
            self.state = restored_state(settings, self.layout, tensors)

    def go(self) -> SVGDResult:
        """Compute until all steps are made, or a signal stops the run.

        Raises:
            SVGDError: A log density, a score, a direction or a bandwidth is not finite.
        """
        first, stopped, n_steps = self.step, False, self.request.n_steps
        traces: list[tuple[Floats, Floats]] = []
        self._look(f"step {self.step + 1}")
        while self.step < n_steps and not stopped:
            length = n_steps - self.step
            if self.every is not None:
                length = min(length, self.every - self.step % self.every)
            before = time.perf_counter()
            traces.append(self.advance(length))
            if self.clock:
                self.clock.take(self.step, self.state[0], self.data)
            if self.progress and jax.process_index() == 0:
                self._report(traces[-1], (time.perf_counter() - before) / length)
            if self.request.stop is not None and self.step < n_steps:
                stopped = self.request.stop.requested()
            if self.request.checkpoint:
                tensors = state_tensors(self.settings, self.layout, self.state)
                save(self.request.checkpoint, self.step, tensors, self.described)
        empty = np.zeros(0, self.state[0].dtype)
        particles = to_host(self.state[0], self.mesh)[: self.layout.n]
        if traces and self.settings.kernel == "rbf":
            warn_of_rounding(particles, float(traces[-1][0][-1]), stacklevel=4)
        return SVGDResult(
            particles=particles,
            steps=self.step,
            first_step=first,
            bandwidths=np.concatenate([empty, *(trace[0] for trace in traces)]),
            phi_rms=np.concatenate([empty, *(trace[1] for trace in traces)]),
            seconds=time.perf_counter() - self.began,
            stopped=stopped,
            timings=self.clock.timings() if self.clock else (),
        )

    def advance(self, length: int) -> tuple[Floats, Floats]:
        """Make some steps, and wait for the end of the last.

        Args:
            length: Number of steps.

        Returns:
            Bandwidths (squared lengths) and root mean square lengths of the direction of these steps, each (length,).

        Raises:
            SVGDError: A log density, a score, a direction or a bandwidth is not finite; the message names the step,
                the particle and its place, and what helps.
        """
        program = self.compiled(self.layout, length)
        self.state, trace = program(self.state, np.int32(self.step), self.data, self.pairs, self.batch_key)
        bandwidths, phi_rms, wrong = (to_host(array, self.mesh) for array in trace)
        impossible = (wrong > 0) | ~np.isfinite(phi_rms) | ~np.isfinite(bandwidths) | ~(bandwidths > 0)
        if impossible.any():
            at = int(np.argmax(impossible))
            self.step += at
            problem = self._density() if wrong[at] else self._direction(float(bandwidths[at]))
            raise SVGDError(f"step {self.step + 1}: {problem}")
        self.step += length
        self._look(f"after step {self.step}")
        return bandwidths, phi_rms

    def _look(self, when: str) -> None:
        """Make sure that all particles lie where the log density is finite.

        Raises:
            SVGDError: One does not.
        """
        if int(to_host(self.infinite(self.state[0], self.data, self.batch_key, np.int32(self.step)), self.mesh)):
            raise SVGDError(f"{when}: {self._density()}")

    def _density(self) -> str:
        """Say where a log density or score is not finite."""
        compute = densities_over(self.settings, scores=True)
        found = (self.state[0], *compute(self.state[0], self.data, self.batch_key, np.int32(self.step)))
        x, values, scores = (to_host(array, self.mesh)[: self.layout.n] for array in found)
        text = describe(x, values, scores, batches=self.settings.target.batch_size is not None)
        # Compiled in another way, a number that nearly overflows may be finite.
        return text or f"log densities or scores are not finite. {UNCONSTRAINED}"

    def _direction(self, bandwidth: float) -> str:
        """Say why the direction is not finite though all scores are."""
        if 0 < bandwidth < float("inf"):
            return f"the direction is not finite, though scores are: they are too large. {UNCONSTRAINED}"
        if callable(self.settings.bandwidth):
            what, way_out = "bandwidth(particles)", "as in lambda x: jnp.var(x)"
        else:
            what, way_out = "the bandwidth", f"and {self.state[0].dtype} has no such number: use JAX_ENABLE_X64=1"
        return f"{what} is {bandwidth}; it is a squared length, larger than 0, {way_out}"

    def _report(self, trace: tuple[Floats, Floats], seconds: float) -> None:
        """Print the line of a report, where one step took some seconds."""
        line = f"step {self.step} of {self.request.n_steps}: direction {trace[1][-1]:.3g}, "
        sys.stdout.write(f"{line}bandwidth {trace[0][-1]:.3g}, {_duration(seconds)} a step\n")
        sys.stdout.flush()


def _plain(settings: Settings, request: Request) -> dict[str, Any]:
    """Collect what makes a run the run that it is, as plain values; devices and processes have no part in it."""
    n, dim = request.start.shape
    bandwidth = "a function" if callable(settings.bandwidth) else settings.bandwidth
    return {
        "particles": n,
        "dim": dim,
        "key": np.asarray(jax.random.key_data(request.key)).tolist(),
        "kernel": settings.kernel,
        "bandwidth": bandwidth,
        "batch_size": settings.target.batch_size,
    }


def _arguments(settings: Settings, request: Request) -> dict[str, Any]:
    """Collect by name what all processes must be given alike, apart from arrays and functions."""
    return {
        "n_steps": request.n_steps,
        "every": request.every,
        "checkpoint": "none" if request.checkpoint is None else "a directory",
        "stop": "none" if request.stop is None else "a signal",
        "timing_log": "none" if request.timing_log is None else "a file",
        "kernel": settings.kernel,
        "exchange": settings.exchange,
        "batch_size": settings.target.batch_size,
        "bandwidth": "a function" if callable(settings.bandwidth) else settings.bandwidth,
    }


def _duration(seconds: float) -> str:
    """Write how long a step took.

    >>> _duration(0.0208), _duration(0.9996), _duration(27.91)
    ('20.8 ms', '1 s', '27.9 s')
    """
    return f"{1e3 * seconds:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"
