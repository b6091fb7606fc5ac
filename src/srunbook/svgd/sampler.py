"""The class that programs use."""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-call"
import functools
import operator
import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]
from jax import Array
from jax.sharding import AxisType, Mesh

from srunbook.signals import StopSignal
from srunbook.svgd.devices import AXIS, Layout, to_host
from srunbook.svgd.kernel import kernel_stein_discrepancy
from srunbook.svgd.results import DimensionWarning, Direction, Floats, Holding, SVGDError, SVGDResult
from srunbook.svgd.run import Run
from srunbook.svgd.steps import Bandwidth, Settings, Target, compile_steps, direction_over

Initial = np.ndarray[Any, Any] | Array | Callable[[Array, int], Array] | None


class SVGD:
    """Stein variational gradient descent (Liu and Wang 2016) over all devices of all processes.

    Any number of particles is spread evenly over the devices: rows that fill up the last devices have no effect. All
    steps of a run are one compiled loop. Memory grows with n d.

    With several processes, call `initialize_distributed()` first, and make the same calls in all of them.

    Args:
        log_density: The log density of one particle of shape (d,), up to a constant; JAX differentiates it. It must be
            finite wherever particles go: for a positive parameter, let the particles be its logarithm u, with the log
            density log p(exp(u)) + u.
        dim: The dimension d, if `run` gets no particles to start from.
        optimizer: An optax optimizer, by default `optax.adam(0.05)`. It gets minus the direction as its gradient.
        bandwidth: h of the kernel ``exp(-|x - y|^2 / h)``: `"median"` for median^2 / log n, with the median distance of
            8192 pairs that are drawn once (or of all pairs if there are fewer); a number; or a function of all
            particles (n, d). In float32, the kernel cannot be much narrower than the distances between particles: if r
            is the largest distance from their mean, directions are rounded by about 1e-7 r^2 / h of the largest
            direction.
        kernel: `"rbf"`, or `"linear"` for x.y + 1, which gets mean and covariance of a Gaussian exactly right.
        mesh: The devices; by default, all devices. Each process has some of them.
        data: Arrays with one row for each observation, or a tree of such arrays; the same on all processes.
        log_likelihood: A function of one particle and rows of the data, which returns the sum over these rows. It is
            added to log_density.
        batch_size: How many rows are drawn for each step, with replacement; their sum is scaled to all rows.

    Raises:
        ValueError: An argument is not allowed.
    """

    def __init__(
        self,
        log_density: Callable[[Array], Array],
        *,
        dim: int | None = None,
        optimizer: optax.GradientTransformation | None = None,
        bandwidth: Bandwidth = "median",
        kernel: Literal["rbf", "linear"] = "rbf",
        mesh: Mesh | None = None,
        data: Any = None,
        log_likelihood: Callable[[Array, Any], Array] | None = None,
        batch_size: int | None = None,
    ) -> None:
        if bandwidth != "median" and not callable(bandwidth):
            bandwidth = float(bandwidth)
            if not 0 < bandwidth < float("inf"):
                raise ValueError(f"bandwidth={bandwidth}: a squared length is larger than 0, as in bandwidth=1.0")
        if kernel not in ("rbf", "linear"):
            raise ValueError(f"kernel={kernel!r}: it is 'rbf' or 'linear'")
        if (log_likelihood is None) != (data is None):
            present = "data" if log_likelihood is None else "log_likelihood"
            raise ValueError(f"only {present}= is given; log_likelihood= and data= come together")
        lengths = {jnp.shape(leaf)[0] if jnp.ndim(leaf) else 0 for leaf in jax.tree.leaves(data)}
        if data is not None and (len(lengths) != 1 or 0 in lengths):
            raise ValueError(f"the arrays of data have {sorted(lengths)} rows; all have the same number, 1 or more")
        rows = max(lengths, default=0)
        if batch_size is not None:
            if not rows:
                raise ValueError(f"batch_size={batch_size}: there are no rows to draw; give data= and log_likelihood=")
            batch_size = _whole("batch_size", batch_size, 1, f"batch_size={min(rows, 32)}", rows)
        target = Target(log_density, log_likelihood, batch_size, rows)
        devices = np.array(jax.devices()) if mesh is None else mesh.devices.reshape(-1)
        line = Mesh(devices, (AXIS,), axis_types=(AxisType.Auto,))
        self.dim = None if dim is None else _whole("dim", dim, 1, "dim=2")
        self.data = data
        self.settings = Settings(target, optimizer or optax.adam(0.05), bandwidth, kernel, line)
        self._compiled = functools.lru_cache(maxsize=16)(functools.partial(compile_steps, self.settings))

    @property
    def mesh(self) -> Mesh:
        """Return the devices, along one axis."""
        return self.settings.mesh

    def run(
        self,
        key: Array,
        n_particles: int,
        n_steps: int,
        initial: Initial = None,
        *,
        progress: bool = False,
        every: int = 100,
        checkpoint: str | os.PathLike[str] | None = None,
        stop: StopSignal | None = None,
        timing_log: str | os.PathLike[str] | None = None,
    ) -> SVGDResult:
        """Move particles for a number of steps (Liu and Wang 2016).

        Args:
            key: A random key, as in `jax.random.key(0)`, the same on all processes.
            n_particles: Number of particles n.
            n_steps: Total number of steps, including the steps before a checkpoint.
            initial: Where the particles start: an array (n, d), the same on all processes; or a function of a key and n
                that makes one. By default, standard normal numbers. Everything is computed in float32, or in float64 if
                the particles are float64 and JAX_ENABLE_X64=1.
            progress: Whether process 0 prints a line at every report.
            every: Number of steps between two reports, checkpoints and checks of `stop`.
            checkpoint: A directory for Orbax checkpoints, which all processes see. A run that finds a checkpoint there
                continues from it, with any number of devices and processes, and with the same number of steps or more.
                Key, number of particles, dimension, kernel, bandwidth, batch size and data have to be the same. Density
                and optimizer are not compared, nor is data that is spread over several processes.
            stop: A stop signal, asked at every report whether to save and stop.
            timing_log: A file to which process 0 appends, at every report, how long each process takes to compute its
                scores: a JSON object per line.

        Returns:
            The particles, the same on all processes, with the bandwidth and the length of the direction of each step.

        Raises:
            ValueError: An argument is not allowed.
            SVGDError: The processes were given different arguments; a log density or a score is not finite, in any step
                or at the end; or the checkpoint is from a different run, has more steps, or cannot be read. The message
                gives the step, the particle and its place.
        """
        n_particles = _whole("n_particles", n_particles, 1, "n_particles=100")
        n_steps = _whole("n_steps", n_steps, 0, "n_steps=1000")
        every = _whole("every", every, 1, "every=100")
        start = self._start(key, n_particles, initial)
        n, d = start.shape
        if self.settings.kernel == "rbf" and d > 1 and 10 * d > n:
            warnings.warn(
                f"{n} particles in {d} dimensions: with fewer than 10 particles per dimension SVGD makes the variance "
                f"too small (of a standard normal distribution 0.69 with n=100, d=5, and 0.20 with d=20); "
                f"use n_particles={10 * d} or more",
                DimensionWarning,
                stacklevel=2,
            )
        schedule = (n_steps, every, checkpoint, stop, timing_log, progress)
        return Run(self.settings, self.data, self._compiled, key, start, *schedule).finish()

    def direction(self, particles: Any) -> Direction:
        """Compute the direction in which particles would move now, with all data.

        Args:
            particles: The particles, shape (n, d).

        Returns:
            The direction, shape (n, d), and the bandwidth, a squared length.

        Raises:
            ValueError: The particles are not finite numbers of that shape.
            SVGDError: A log density or a score is not finite.
        """
        x = _finite(particles)
        settings = replace(self.settings, target=replace(self.settings.target, batch_size=None))
        layout = Layout(len(x), self.mesh)
        key = jax.random.key(0)  # chooses pairs for the median, and batches, of which there are none
        pairs, step = settings.pairs(key, len(x)), (key, jnp.zeros((), jnp.int32))
        placed = layout.place(x)
        phi, h, wrong = jax.jit(direction_over(settings, layout))(placed, self.data, pairs, *step)
        if to_host(wrong):
            self.scores(x)  # says which particles
        return Direction(to_host(phi)[: layout.n], float(to_host(h)))

    def placement(self, n_particles: int) -> tuple[Holding, ...]:
        """List which particles each device of each process holds: equal parts, but the last may have fewer or none.

        Args:
            n_particles: Number of particles, 1 or more.
        """
        return Layout(_whole("n_particles", n_particles, 1, "n_particles=100"), self.mesh).holdings()

    def scores(self, particles: Any) -> Floats:
        """Compute the gradients of the log density at each particle, with all data.

        Args:
            particles: The particles, shape (n, d).

        Returns:
            The scores, shape (n, d), in units of 1 / the particles' units.

        Raises:
            ValueError: The particles are not finite numbers of that shape.
            SVGDError: A log density or a score is not finite.
        """
        target = replace(self.settings.target, batch_size=None)
        scores, problem = target.checked_scores(_finite(particles), self.data)
        if problem:
            raise SVGDError(problem)
        return scores

    def ksd(self, particles: Any) -> float:
        """Compute the kernel Stein discrepancy of particles, shape (n, d), as `kernel_stein_discrepancy` does."""
        return float(kernel_stein_discrepancy(jnp.asarray(particles), jnp.asarray(self.scores(particles))))

    def _start(self, key: Array, n: int, initial: Initial) -> Floats:
        """Make the particles to start from, shape (n, d)."""
        if initial is None:
            if self.dim is None:
                raise ValueError(
                    "initial= and dim= are both missing: give SVGD(..., dim=2), or particles to start from"
                )
            return np.asarray(jax.random.normal(jax.random.fold_in(key, 0), (n, self.dim)))
        x = _finite(initial(jax.random.fold_in(key, 0), n) if callable(initial) else initial)
        if len(x) != n or (self.dim is not None and x.shape[1] != self.dim):
            raise ValueError(f"initial has the shape {x.shape}; needed is ({n}, {self.dim or 'd'})")
        return x


def _whole(name: str, value: Any, least: int, example: str, most: int = 2**31 - 1) -> int:
    """Return a whole number of Python or NumPy; raise ValueError for anything else."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if not least <= number <= most:
        raise ValueError(f"{name}={value!r}: it is a whole number, {least} to {most}, as in {example}")
    return number


def _finite(particles: Any) -> Floats:
    """Return particles, shape (n, d), in JAX's own floating-point type; raise ValueError for others."""
    x = np.asarray(particles)
    numbers = jnp.issubdtype(x.dtype, jnp.floating) or jnp.issubdtype(x.dtype, jnp.integer)
    if x.ndim != 2 or 0 in x.shape or not numbers:
        raise ValueError(
            f"particles have the shape {x.shape} and the type {x.dtype}; needed are numbers of shape (n, d)"
        )
    if x.dtype != np.float32:
        x = x.astype(jnp.result_type(float))
    wrong = np.flatnonzero(~np.isfinite(x).all(axis=1))
    if len(wrong):
        raise ValueError(
            f"{len(wrong)} of {len(x)} particles are not finite, first number {wrong[0]}, at {x[wrong[0]]}"
        )
    return x
