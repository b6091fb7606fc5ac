"""SVGD: the settings, the step, and the loop over steps as one compiled program."""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-call"
import functools
import operator
import os
import warnings
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]
from jax import Array, lax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from srunbook.checkpoint import StopSignal
from srunbook.svgd import _bandwidth, _kernel
from srunbook.svgd._kernel import AXIS, Layout
from srunbook.svgd._ksd import kernel_stein_discrepancy
from srunbook.svgd._result import DimensionWarning, Direction, Floats, Holding, SVGDResult
from srunbook.svgd._target import Target

Bandwidth = Literal["median", "exact_median"] | float | Callable[[Array], Array]
Initial = np.ndarray[Any, Any] | Array | Callable[[Array, int], Array] | None


class SVGD:
    """Stein variational gradient descent (Liu and Wang 2016) over all devices of all processes.

    The particles lie in equal parts on the devices. Their number need not be divisible: rows that fill up the last
    devices take no part. All steps of a run are one compiled loop. Memory grows with n d.

    With several processes, call `initialize_distributed()` first, and let all of them do the same calls.

    Args:
        log_density: The log density of one particle of shape (d,), up to a constant; JAX differentiates it.
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
            _one_of("bandwidth", bandwidth, ("median", "exact_median"), "a number, or a function of the particles")
        elif not callable(bandwidth) and not 0 < bandwidth < float("inf"):
            raise ValueError(f"bandwidth={bandwidth}: a squared length is larger than 0, as in bandwidth=1.0")
        _one_of("kernel", kernel, ("rbf", "linear"))
        _one_of("exchange", exchange, ("all_gather", "ring"))
        if dim is not None:
            dim = _whole("dim", dim, 1, "dim=2")
        if not callable(log_density):
            raise ValueError(
                f"log_density={log_density!r}: it is a function of one particle, as in lambda x: -0.5 * jnp.sum(x**2)"
            )
        if optimizer is None:
            optimizer = optax.adam(0.05)
        if not (callable(getattr(optimizer, "init", None)) and callable(getattr(optimizer, "update", None))):
            raise ValueError(f"optimizer={optimizer!r}: it is one of optax, as in optimizer=optax.adam(0.05)")
        self.target = Target.checked(log_density, log_likelihood, data, batch_size)
        self.dim = dim
        self.optimizer = optimizer
        self.bandwidth = bandwidth
        self.kernel = kernel
        self.exchange = exchange
        if mesh is not None and not isinstance(mesh, Mesh):
            raise ValueError(
                f"mesh={mesh!r}: it is a mesh, as in jax.make_mesh((4,), ('x',)); without it all devices are taken"
            )
        devices = np.array(jax.devices()) if mesh is None else mesh.devices.reshape(-1)
        if jax.process_index() not in {device.process_index for device in devices}:
            raise ValueError(
                f"mesh has no device of process {jax.process_index()}; all processes take part, each with some device"
            )
        self.mesh = Mesh(devices, (AXIS,), axis_types=(AxisType.Auto,))
        self._data = data

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
        """Moves particles for a number of steps.

        Args:
            key: A random key, as `jax.random.key(0)`, the same on all processes.
            n_particles: Number of particles n.
            n_steps: Number of steps in all, also those of a checkpoint.
            initial: Where the particles start: an array (n, d), the same on all processes; or a function of a key and n
                that makes one. By default standard normal numbers. All is computed in float32, or, where these are
                float64 and JAX_ENABLE_X64=1, in float64.
            progress: Whether process 0 prints a line at every report; what the others are given does not matter.
            every: So many steps are computed between two reports, checkpoints and looks at `stop`.
            checkpoint: A directory for checkpoints, which all processes see. A run that finds one there goes on from
                it, with any number of devices and processes, and with the same number of steps or more. It has to be
                of the same run: key, initial particles, data, density, optimizer, kernel, bandwidth and batch size.
                Numbers are compared up to rounding; density and optimizer are compared by what they give at a few
                places, so a density may gain a constant.
            stop: Asked at every report whether to save and stop.
            timing_log: A file to which process 0 appends at every report how long each process takes for its scores:
                a JSON object per line.

        Raises:
            ValueError: An argument is not of the form that is needed.
            SVGDError: Scores are not finite, or the processes were not given the same.
            srunbook.checkpoint.CheckpointError: The checkpoint is of another run, or has more steps, or cannot be read
                or written.
        """
        from srunbook.svgd._run import Run

        n_particles = _whole("n_particles", n_particles, 1, "n_particles=100")
        n_steps = _whole("n_steps", n_steps, 0, "n_steps=1000")
        every = _whole("every", every, 1, "every=100")
        key = _one_key(key)
        start = self._start(key, n_particles, initial)
        n, d = start.shape
        if self.kernel == "rbf" and d > 1 and 10 * d > n:
            warnings.warn(
                f"{n} particles in {d} dimensions: with fewer than 10 particles per dimension SVGD makes the variance "
                f"too small (of a standard normal distribution 0.69 with n=100, d=5, and 0.20 with d=20); "
                f"use n_particles={10 * d} or more",
                DimensionWarning,
                stacklevel=2,
            )
        return Run(self, key, start, n_steps, every, checkpoint, stop, timing_log, progress=progress).go()

    def direction(self, particles: Any, key: Array | None = None) -> Direction:
        """The direction in which particles would move now, with all data.

        Args:
            particles: The particles, shape (n, d).
            key: Chooses the pairs for the median, by default `jax.random.key(0)`.
        """
        x = _real(particles)
        layout = self._layout(len(x))
        pairs = self._pairs(jax.random.key(0) if key is None else key, layout.n)
        whole = Target(self.target.log_density, self.target.log_likelihood, None, self.target.rows)
        compute = jax.jit(self._direction(layout, whole))
        phi, h, _ = compute(self._spread(x, layout), self._data, pairs, jax.random.key(0), jnp.zeros((), jnp.int32))
        bandwidth = float(self._gathered(h))
        if self.kernel == "rbf":
            _kernel.warn_of_rounding(x, bandwidth, stacklevel=3)
        return Direction(self._gathered(phi)[: layout.n], bandwidth)

    def placement(self, n_particles: int) -> tuple[Holding, ...]:
        """Which particles each device of each process holds, in equal parts: the last may hold fewer, or none.

        Args:
            n_particles: Number of particles.
        """
        layout = self._layout(_whole("n_particles", n_particles, 1, "n_particles=100"))
        places = self._sharding(Spec(AXIS)).devices_indices_map((layout.padded,))
        held: list[tuple[Any, slice]] = [(device, index[0]) for device, index in places.items()]
        return tuple(
            Holding(device.process_index, f"{device.platform}:{device.id}", range(*rows.indices(layout.n)))
            for device, rows in held
        )

    def scores(self, particles: Any) -> Floats:
        """Gradients of the log density at each particle, with all data, shape (n, d)."""
        whole = Target(self.target.log_density, self.target.log_likelihood, None, self.target.rows)
        return np.asarray(jax.jit(whole.scores)(jnp.asarray(_real(particles)), self._data))

    def ksd(self, particles: Any) -> float:
        """Kernel Stein discrepancy of particles, see `kernel_stein_discrepancy`."""
        return float(kernel_stein_discrepancy(jnp.asarray(particles), jnp.asarray(self.scores(particles))))

    # What follows is for the loop.

    def _layout(self, n: int) -> Layout:
        on_cpu = self.mesh.devices.flat[0].platform == "cpu"
        return Layout(n, self.mesh.devices.size, self.exchange == "ring", on_cpu)

    def _start(self, key: Array, n: int, initial: Initial) -> Floats:
        if initial is None:
            if self.dim is None:
                raise ValueError(
                    "initial= and dim= are both missing: give SVGD(..., dim=2), or particles to start from"
                )
            return np.asarray(jax.random.normal(jax.random.fold_in(key, 0), (n, self.dim)))
        made = initial(jax.random.fold_in(key, 0), n) if callable(initial) else initial
        x = _real(made)
        if len(x) != n or (self.dim is not None and x.shape[1] != self.dim):
            raise ValueError(f"initial has the shape {x.shape}; needed is ({n}, {self.dim or 'd'})")
        return x

    def _pairs(self, key: Array, n: int) -> np.ndarray[Any, Any]:
        if self.kernel != "rbf" or self.bandwidth != "median":
            return np.zeros((0, 2), np.int32)
        return _bandwidth.some_pairs(jax.random.fold_in(key, 1), n)

    def _spread(self, rows: Floats, layout: Layout) -> Array:
        """Rows on the devices; copies of the first fill up, for which the density is as good as anywhere."""
        filled = np.concatenate([rows, np.broadcast_to(rows[:1], (layout.padded - layout.n, *rows.shape[1:]))])
        return jax.make_array_from_callback(filled.shape, self._sharding(Spec(AXIS)), lambda index: filled[index])

    def _sharding(self, spec: Spec) -> NamedSharding:
        return NamedSharding(self.mesh, spec)

    def _gathered(self, array: Array) -> np.ndarray[Any, Any]:
        """A whole array as each process gets it."""
        if array.is_fully_addressable:
            return np.asarray(array)
        if not array.is_fully_replicated:
            array = jax.jit(_same, out_shardings=self._sharding(Spec()))(array)
        return np.asarray(array.addressable_data(0))

    def _direction(self, layout: Layout, target: Target) -> Callable[..., tuple[Array, Array, Array]]:
        """Direction (padded, d), bandwidth, and the number of particles whose score is not finite."""

        def local(x: Array, data: Any, pairs: Array, key: Array, step: Array) -> tuple[Array, Array, Array]:
            mask = layout.mask()[:, None]
            scores = target.scores(x, target.batch(data, key, step))
            wrong = jnp.sum(mask[:, 0] & ~jnp.all(jnp.isfinite(scores), axis=1))
            scores = jnp.where(mask, scores, 0)
            if self.kernel == "linear":
                phi, h = _kernel.linear_direction(x, scores, layout), jnp.ones((), x.dtype)
            else:
                centred = _kernel.centre(x, layout)
                everyone = None if layout.ring else _kernel.gather(centred)
                h = self._h(x, centred, everyone, pairs, layout)
                phi = _kernel.rbf_direction(centred, scores, h, layout, everyone)
            return jnp.where(mask, phi, 0), h, lax.psum(wrong, AXIS)

        return jax.shard_map(
            local,
            mesh=self.mesh,
            in_specs=(Spec(AXIS), Spec(), Spec(), Spec(), Spec()),
            out_specs=(Spec(AXIS), Spec(), Spec()),
            check_vma=False,
        )

    def _h(self, x: Array, centred: Array, everyone: Array | None, pairs: Array, layout: Layout) -> Array:
        if self.bandwidth == "median":
            return _bandwidth.from_pairs(centred, pairs, layout, everyone)
        if self.bandwidth == "exact_median":
            if layout.n > _bandwidth.MOST_EXACT:
                raise ValueError(
                    f"bandwidth='exact_median' counts the pairs of {_bandwidth.MOST_EXACT} particles at most, found "
                    f"{layout.n}; use bandwidth='median', whose error is 0.5 %"
                )
            return _bandwidth.exact(centred, layout, everyone)
        if callable(self.bandwidth):
            h: Array = jnp.asarray(self.bandwidth(lax.all_gather(x, AXIS, tiled=True)[: layout.n]), x.dtype)
            if h.shape != ():
                raise ValueError(
                    f"bandwidth(particles) has the shape {h.shape}; it is one number, as in lambda x: jnp.var(x)"
                )
            return h
        return jnp.asarray(self.bandwidth, x.dtype)

    @functools.lru_cache(maxsize=16)  # noqa: B019 - compiled programs live as long as the sampler
    def _program(self, layout: Layout, length: int) -> Callable[..., Any]:
        """A number of steps as one compiled loop: state and trace after them."""
        direction = self._direction(layout, self.target)

        def step(carry: Any, number: Array, data: Any, pairs: Array, key: Array) -> Any:
            x, memory = carry
            phi, h, wrong = direction(x, data, pairs, key, number)
            updates, memory = self.optimizer.update(-phi, memory, x)
            x = optax.apply_updates(x, updates)
            return (x, memory), (h, jnp.sqrt(jnp.sum(phi * phi) / layout.n), wrong)

        def steps(state: Any, first: Array, data: Any, pairs: Array, key: Array) -> Any:
            numbers = first + jnp.arange(length, dtype=jnp.int32)
            return lax.scan(lambda carry, number: step(carry, number, data, pairs, key), state, numbers)

        return jax.jit(steps, donate_argnums=0)


def _same(array: Array) -> Array:
    return array


def _one_of(name: str, value: str, allowed: tuple[str, ...], more: str = "") -> None:
    if value not in allowed:
        choices = " or ".join(map(repr, allowed)) + (f", {more}" if more else "")
        raise ValueError(f"{name}={value!r}: it is {choices}, as in {name}={allowed[0]!r}")


def _whole(name: str, value: Any, least: int, example: str) -> int:
    """A whole number that is not too small."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise ValueError(f"{name}={value!r}: it is a whole number, {least} or more, as in {example}")
    return number


def _one_key(key: Any) -> Array:
    """A random key; the older kind, an array of numbers, is taken, too."""
    if isinstance(key, Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == ():
        return key
    if isinstance(key, Array | np.ndarray) and key.dtype == np.uint32 and key.ndim == 1:
        wrapped: Array = jax.random.wrap_key_data(jnp.asarray(key))
        return wrapped
    raise ValueError(f"key={key!r}: it is one random key, as in jax.random.key(0)")


def _real(particles: Any) -> Floats:
    """Particles as an array of JAX's own floating-point type."""
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
            f"{len(wrong)} of {len(x)} particles are not finite, first number {wrong[0]}, at {x[wrong[0]]}; "
            "particles start from finite places"
        )
    return x
