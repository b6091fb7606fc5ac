"""SVGD: the class that programs use."""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-call"
import functools
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
from srunbook.svgd._arguments import finite_places, one_key, one_of, real, whole
from srunbook.svgd._finite import describe
from srunbook.svgd._kernel import warn_of_rounding
from srunbook.svgd._ksd import kernel_stein_discrepancy
from srunbook.svgd._layout import AXIS, holdings, spread, to_host
from srunbook.svgd._program import (
    Bandwidth,
    Settings,
    compile_steps,
    count_infinite,
    direction_over,
    pairs_for_median,
)
from srunbook.svgd._result import DimensionWarning, Direction, Floats, Holding, SVGDError, SVGDResult
from srunbook.svgd._run import Request, Run
from srunbook.svgd._target import Target

Initial = np.ndarray[Any, Any] | Array | Callable[[Array, int], Array] | None


class SVGD:
    """Stein variational gradient descent (Liu and Wang 2016) over all devices of all processes.

    The particles lie in equal parts on the devices. Their number need not be divisible: rows that fill up the last
    devices take no part. All steps of a run are one compiled loop. Memory grows with n d.

    With several processes, call `initialize_distributed()` first, and let all of them do the same calls.

    Args:
        log_density: The log density of one particle of shape (d,), up to a constant; JAX differentiates it. It is
            finite wherever particles go: for a positive parameter let them be its logarithm u, with log p(exp(u)) + u.
        dim: The dimension d, where `run` gets no particles to start from.
        optimizer: An optax optimizer, by default `optax.adam(0.05)`. It gets minus the direction as its gradient.
        bandwidth: h of the kernel ``exp(-|x - y|^2 / h)``: `"median"` for median^2 / log n, with the median distance of
            8192 pairs that are drawn once (of all where there are no more); `"exact_median"` for that of all pairs;
            a number; or a function of all particles (n, d). In float32 the kernel cannot be far narrower than the
            particles lie apart: with the largest distance r from their mean, directions are rounded by about
            1e-7 r^2 / h of the largest. A `PrecisionWarning` says so where that is more than 1 %.
        kernel: `"rbf"`, or `"linear"` for x.y + 1, which gets mean and covariance of a Gaussian exactly right.
        exchange: `"all_gather"` brings all particles to each device; `"ring"` lets them travel around, which needs
            less memory where n is very large.
        mesh: The devices, by default all.
        data: Arrays with one row for each observation, or a tree of such arrays; the same on all processes.
        log_likelihood: Of one particle and rows of the data, to the sum over these rows. It is added to log_density.
        batch_size: How many rows are drawn for each step, with replacement; their sum is scaled to all rows.

    Raises:
        ValueError: An argument is not one of those that are allowed.
    """

    def __init__(
        self,
        log_density: Callable[[Array], Array],
        *,
        dim: int | None = None,
        optimizer: optax.GradientTransformation | None = None,
        bandwidth: Bandwidth = "median",
        kernel: Literal["rbf", "linear"] = "rbf",
        exchange: Literal["all_gather", "ring"] = "all_gather",
        mesh: Mesh | None = None,
        data: Any = None,
        log_likelihood: Callable[[Array, Any], Array] | None = None,
        batch_size: int | None = None,
    ) -> None:
        if isinstance(bandwidth, str):
            one_of("bandwidth", bandwidth, ("median", "exact_median"), "a number, or a function of the particles")
        elif not callable(bandwidth):
            if not 0 < real(bandwidth) < float("inf"):
                raise ValueError(
                    f"bandwidth={bandwidth!r}: a squared length is a number larger than 0, as in bandwidth=1.0"
                )
            bandwidth = real(bandwidth)
        one_of("kernel", kernel, ("rbf", "linear"))
        one_of("exchange", exchange, ("all_gather", "ring"))
        if dim is not None:
            dim = whole("dim", dim, 1, "dim=2")
        if not callable(log_density):
            raise ValueError(
                f"log_density={log_density!r}: it is a function of one particle, as in lambda x: -0.5 * jnp.sum(x**2)"
            )
        if optimizer is None:
            optimizer = optax.adam(0.05)
        if not (callable(getattr(optimizer, "init", None)) and callable(getattr(optimizer, "update", None))):
            raise ValueError(f"optimizer={optimizer!r}: it is one of optax, as in optimizer=optax.adam(0.05)")
        target = Target.checked(log_density, log_likelihood, data, batch_size)
        if mesh is not None and not isinstance(mesh, Mesh):
            raise ValueError(
                f"mesh={mesh!r}: it is a mesh, as in jax.make_mesh((4,), ('x',)); without it all devices are taken"
            )
        devices = np.array(jax.devices()) if mesh is None else mesh.devices.reshape(-1)
        if jax.process_index() not in {device.process_index for device in devices}:
            raise ValueError(
                f"mesh has no device of process {jax.process_index()}; all processes take part, each with some device"
            )
        line = Mesh(devices, (AXIS,), axis_types=(AxisType.Auto,))
        self.dim = dim
        self.data = data
        self.settings = Settings(target, optimizer, bandwidth, kernel, exchange, line)
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
            key: A random key, as `jax.random.key(0)`, the same on all processes.
            n_particles: Number of particles n.
            n_steps: Number of steps in all, also those of a checkpoint.
            initial: Where the particles start: an array (n, d), the same on all processes; or a function of a key and n
                that makes one. By default standard normal numbers. All is computed in float32, or, where these are
                float64 and JAX_ENABLE_X64=1, in float64.
            progress: Whether process 0 prints a line at every report; what the others are given does not matter.
            every: So many steps are computed between two reports, checkpoints and looks at `stop`.
            checkpoint: A directory for checkpoints, which all processes see; Orbax writes them. A run that finds one
                there continues it, with any number of devices and processes, and with the same number of steps or more.
                Key, number of particles, dimension, kernel, bandwidth and batch size have to be the same. Density, data
                and optimizer are not compared.
            stop: Asked at every report whether to save and stop.
            timing_log: A file to which process 0 appends at every report how long each process takes for its scores:
                a JSON object per line.

        Returns:
            The particles, the same on all processes, with the bandwidth and the length of the direction of each step.

        Raises:
            ValueError: An argument is not of the form that is needed.
            SVGDError: The processes were not given the same; or a log density or a score is not finite. Scores are
                looked at at every step, log densities of all particles at the start, before each report or checkpoint,
                at the end, and in turn within 32 steps. The message names the step, the particle and its place. Or the
                checkpoint is of another run, has more steps, or cannot be read.
        """
        n_particles = whole("n_particles", n_particles, 1, "n_particles=100")
        n_steps = whole("n_steps", n_steps, 0, "n_steps=1000")
        every = whole("every", every, 1, "every=100")
        key = one_key(key)
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
        request = Request(key, start, n_steps, every, checkpoint, stop, timing_log, progress)
        return Run(self.settings, self.data, self._compiled, request).go()

    def direction(self, particles: Any, key: Array | None = None) -> Direction:
        """Compute the direction in which particles would move now, with all data.

        Args:
            particles: The particles, shape (n, d).
            key: Chooses the pairs for the median, by default `jax.random.key(0)`.

        Returns:
            The direction, shape (n, d), and the bandwidth, a squared length.

        Raises:
            ValueError: The particles are not finite numbers of that shape.
            SVGDError: A log density or a score is not finite.
        """
        x = finite_places(particles)
        settings = replace(self.settings, target=self.settings.target.with_all_rows())
        layout = settings.layout(len(x))
        pairs = pairs_for_median(settings, jax.random.key(0) if key is None else key, layout.n)
        step = (jax.random.key(0), jnp.zeros((), jnp.int32))  # without batches it does not matter which
        placed = spread(x, layout, self.mesh)
        phi, h, wrong = jax.jit(direction_over(settings, layout))(placed, self.data, pairs, *step)
        if to_host(wrong + count_infinite(settings, layout)(placed, self.data, *step), self.mesh):
            self.scores(x)  # says which particles
        bandwidth = float(to_host(h, self.mesh))
        if self.settings.kernel == "rbf":
            warn_of_rounding(x, bandwidth, stacklevel=3)
        return Direction(to_host(phi, self.mesh)[: layout.n], bandwidth)

    def placement(self, n_particles: int) -> tuple[Holding, ...]:
        """List which particles each device of each process holds, in equal parts: the last may hold fewer, or none.

        Args:
            n_particles: Number of particles, 1 or more.

        Raises:
            ValueError: The number is not a whole number of 1 or more.
        """
        layout = self.settings.layout(whole("n_particles", n_particles, 1, "n_particles=100"))
        return holdings(layout, self.mesh)

    def scores(self, particles: Any) -> Floats:
        """Compute the gradients of the log density at each particle, with all data.

        Args:
            particles: The particles, shape (n, d).

        Returns:
            The scores, shape (n, d), in units of 1 / those of the particles.

        Raises:
            ValueError: The particles are not finite numbers of that shape.
            SVGDError: A log density or a score is not finite.
        """
        x = finite_places(particles)
        compute = jax.jit(self.settings.target.with_all_rows().values_and_scores)
        values, scores = map(np.asarray, compute(jnp.asarray(x), self.data))
        if problem := describe(x, values, scores):
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
        made = initial(jax.random.fold_in(key, 0), n) if callable(initial) else initial
        x = finite_places(made)
        if len(x) != n or (self.dim is not None and x.shape[1] != self.dim):
            raise ValueError(f"initial has the shape {x.shape}; needed is ({n}, {self.dim or 'd'})")
        return x
