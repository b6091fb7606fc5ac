"""What the benchmarks of SVGD share: a loop of steps that is compiled once and then timed."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from srunbook import phase_type
from srunbook.svgd import SVGD
from srunbook.svgd.run import Run
from srunbook.svgd.steps import compile_steps


class Loop:
    """Steps as `SVGD.run` makes them: one compiled loop, of which the times are those of its steps alone.

    Args:
        sampler: The settings.
        start: Particles to start from, shape (n, d).
        steps: Steps of each call.
    """

    def __init__(self, sampler: SVGD, start: np.ndarray[Any, Any], steps: int) -> None:
        key = jax.random.key(1)
        self.steps = steps
        compiled = functools.cache(functools.partial(compile_steps, sampler.settings))
        self._run = Run(sampler.settings, sampler.data, compiled, key, start, steps, every=steps)
        self()  # compiles

    def __call__(self) -> float:
        """Make the steps; return the seconds of one of them."""
        begin = time.perf_counter()
        self._run.advance(self.steps)  # waits for the end of the last one
        return (time.perf_counter() - begin) / self.steps


def timed(call: Callable[[], Any], seconds: float) -> float:
    """Return the seconds of one call, from as many as fit into some time, but one at least."""
    count, start = 0, time.perf_counter()
    while count == 0 or time.perf_counter() - start < seconds:
        jax.block_until_ready(call())
        count += 1
    return (time.perf_counter() - start) / count


def peak_mebibytes() -> float:
    """Return the most memory that this process has had; getrusage would also count what it was forked from."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def normal(n: int, d: int, scale: float = 1.0) -> np.ndarray[Any, Any]:
    """Draw standard normal numbers to start from, shape (n, d), the same on all processes."""
    return (scale * np.random.default_rng(0).normal(size=(n, d))).astype(np.float32)


def coalescent(d: int, rows: int) -> dict[str, Any]:
    """Return the arguments of `SVGD` for a costly target: how fast lineages join, from the heights of many genealogies.

    Args:
        d: Number of rates; genealogies have d + 1 samples.
        rows: Number of genealogies.
    """
    lineages = np.arange(d + 1, 1, -1)
    usual = (lineages * (lineages - 1) / 2).astype(np.float32)
    waits = np.random.default_rng(1).exponential(1 / usual, size=(rows, d))

    def log_prior(x: Any) -> Any:
        return -0.5 * jnp.sum(x**2)

    def log_likelihood(x: Any, heights: Any) -> Any:
        return phase_type.hypoexponential(jnp.exp(x) * usual).log_prob(heights).sum()

    return {"log_density": log_prior, "log_likelihood": log_likelihood, "data": waits.sum(axis=1).astype(np.float32)}
