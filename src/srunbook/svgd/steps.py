"""The distribution, the direction over all devices, and a number of steps as one compiled loop."""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-call"
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]
from jax import Array, lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as Spec

from srunbook.svgd import bandwidth as bandwidths
from srunbook.svgd import kernel as kernels
from srunbook.svgd.devices import AXIS, Layout
from srunbook.svgd.results import Floats

Bandwidth: TypeAlias = Literal["median"] | float | Callable[[Array], Array]

UNCONSTRAINED = (
    "Particles cannot be turned back where a density ends. Let them be unconstrained: for a positive parameter its "
    "logarithm u, with log p(exp(u)) + u as the log density; or take smaller steps, as in optimizer=optax.adam(0.01)"
)
OPTIMIZER = "Its place is not finite either. Look at the optimizer: is its step size a number, and small enough?"


@dataclass(frozen=True)
class Target:
    """A log density, up to a constant: `log_density` and, if there are data, the log likelihood of their rows."""

    log_density: Callable[[Array], Array]  # of one particle, shape (d,), to a number
    log_likelihood: Callable[[Array, Any], Array] | None = None  # of a particle and some rows, to the sum over these
    batch_size: int | None = None  # rows that are drawn at each step, with replacement; None for all
    rows: int = 0  # of the data

    def batch(self, data: Any, key: Array, step: Any) -> Any:
        """Draw the rows of a step, with replacement: the same for all particles, on every device."""
        if self.batch_size is None:
            return data
        chosen = jax.random.randint(jax.random.fold_in(key, step), (self.batch_size,), 0, self.rows)
        return jax.tree.map(lambda array: jnp.asarray(array)[chosen], data)

    def value(self, particle: Array, batch: Any) -> Array:
        """Compute the log density of one particle, shape (d,), with the likelihood of a batch scaled to all rows."""
        total = jnp.asarray(self.log_density(particle))
        if self.log_likelihood is not None:
            scale = 1.0 if self.batch_size is None else self.rows / self.batch_size
            total = total + scale * self.log_likelihood(particle, batch)
        if total.shape != ():
            raise ValueError(
                f"the log density of one particle has the shape {total.shape}; it is one number, "
                "as in lambda x: -0.5 * jnp.sum(x**2)"
            )
        return total

    def values_and_scores(self, x: Array, batch: Any) -> tuple[Array, Array]:
        """Compute log densities (rows,) and scores, their gradients (rows, d), at each particle: shape (rows, d)."""
        both: tuple[Array, Array] = jax.vmap(jax.value_and_grad(self.value), (0, None))(x, batch)
        return both

    def checked_scores(self, x: Floats, batch: Any) -> tuple[Floats, str | None]:
        """Compute the scores (n, d) on this process; describe the first particle without a finite density or score."""
        values, scores = map(np.asarray, jax.jit(self.values_and_scores)(jnp.asarray(x), batch))
        placed: Any = np.isfinite(x).all(axis=1)
        wrong = ~(placed & np.isfinite(values) & np.isfinite(scores).all(axis=1))
        if not wrong.any():
            return scores, None
        first = int(np.argmax(wrong))
        problem = (
            f"{wrong.sum()} of {len(x)} particles have no finite log density or score, first particle {first} at "
            f"{_short(x[first])}: log density {values[first]:.4g}, score {_short(scores[first])}"
            + ("; with the rows drawn for that step" if self.batch_size else "")
        )
        return scores, f"{problem}. {UNCONSTRAINED if placed[first] else OPTIMIZER}"


def _short(row: Floats) -> str:
    return np.array2string(row, precision=4, threshold=8, edgeitems=3, max_line_width=10_000)


@dataclass(frozen=True, eq=False)
class Settings:
    """What defines the step of a sampler; `SVGD` has checked it."""

    target: Target
    optimizer: optax.GradientTransformation  # gets minus the direction as its gradient
    bandwidth: Bandwidth  # h, a squared length, or the rule that gives it
    kernel: Literal["rbf", "linear"]
    mesh: Mesh  # along one axis

    def pairs(self, key: Array, n: int) -> np.ndarray[Any, Any]:
        """Draw the pairs whose distances give the bandwidth, shape (pairs, 2); none if it needs none."""
        if self.kernel != "rbf" or self.bandwidth != "median":
            return np.zeros((0, 2), np.int32)
        return bandwidths.some_pairs(jax.random.fold_in(key, 1), n)


def direction_over(settings: Settings, layout: Layout) -> Callable[..., tuple[Array, Array, Array]]:
    """Make the function that computes the direction of all particles.

    Its arguments are particles (padded, d), data, pairs, batch key and step. It returns the direction (padded, d), the
    bandwidth, and how many particles have no finite score or log density.
    """
    target = settings.target

    def local(x: Array, data: Any, pairs: Array, key: Array, step: Array) -> tuple[Array, Array, Array]:
        mask = layout.mask()[:, None]
        values, scores = target.values_and_scores(x, target.batch(data, key, step))
        wrong = jnp.sum(mask[:, 0] & ~(jnp.isfinite(values) & jnp.all(jnp.isfinite(scores), axis=1)))
        scores = jnp.where(mask, scores, 0)
        if settings.kernel == "linear":
            phi, h = kernels.linear_direction(x, scores, layout), jnp.ones((), x.dtype)
        else:
            centred = kernels.centre(x, layout)
            everyone = kernels.gather(centred)
            h = _bandwidth(settings.bandwidth, x, centred, everyone, pairs, layout)
            phi = kernels.rbf_direction(centred, scores, h, layout, everyone)
        return jnp.where(mask, phi, 0), h, lax.psum(wrong, AXIS)

    specs = (Spec(AXIS), Spec(), Spec(), Spec(), Spec())
    outputs = (Spec(AXIS), Spec(), Spec())
    return jax.shard_map(local, mesh=settings.mesh, in_specs=specs, out_specs=outputs, check_vma=False)


def _bandwidth(bandwidth: Bandwidth, x: Array, centred: Array, everyone: Array, pairs: Array, layout: Layout) -> Array:
    """Compute the bandwidth h, a squared length, from the particles of this device and of all."""
    if bandwidth == "median":
        return bandwidths.from_pairs(centred, pairs, layout, everyone)
    if not callable(bandwidth):
        return jnp.asarray(bandwidth, x.dtype)
    h: Array = jnp.asarray(bandwidth(kernels.gather(x)[: layout.n]), x.dtype)
    if h.shape != ():
        raise ValueError(f"bandwidth(particles) has the shape {h.shape}; it is one number, as in lambda x: jnp.var(x)")
    return h


def count_infinite(target: Target, layout: Layout) -> Callable[..., Array]:
    """Compile how many particles have no finite place or density, from particles (padded, d), data, key and step."""

    def local(x: Array, data: Any, key: Array, step: Array) -> Array:
        values, _ = target.values_and_scores(x, target.batch(data, key, step))
        fine = jnp.isfinite(values) & jnp.all(jnp.isfinite(x), axis=1)
        count: Array = lax.psum(jnp.sum(layout.mask() & ~fine), AXIS)
        return count

    specs = (Spec(AXIS), Spec(), Spec(), Spec())
    return jax.jit(jax.shard_map(local, mesh=layout.mesh, in_specs=specs, out_specs=Spec(), check_vma=False))


def compile_steps(settings: Settings, layout: Layout, length: int) -> Callable[..., Any]:
    """Make a number of steps one compiled loop, which overwrites the state it is given.

    Particles stay where they are once a log density or score is seen not to be finite.

    Returns:
        A function of the state (particles, opt_state), the number of steps that it has made, data, pairs and batch key.
        It returns the state after the steps, and for each step the bandwidth, the root mean square of the directions'
        lengths, and how many particles had no finite score or log density, each of shape (length,).
    """
    direction = direction_over(settings, layout)

    def steps(state: Any, first: Array, data: Any, pairs: Array, key: Array) -> Any:
        def step(carry: Any, number: Array) -> Any:
            x, opt_state, failed = carry
            phi, h, wrong = direction(x, data, pairs, key, number)
            failed = failed | (wrong > 0)
            updates, opt_state = settings.optimizer.update(-phi, opt_state, x)
            x = jnp.where(failed, x, optax.apply_updates(x, updates))
            return (x, opt_state, failed), (h, jnp.sqrt(jnp.sum(phi * phi) / layout.n), wrong)

        numbers = first + jnp.arange(length, dtype=jnp.int32)
        (*state, _), trace = lax.scan(step, (*state, jnp.zeros((), bool)), numbers)
        return tuple(state), trace

    return jax.jit(steps, donate_argnums=0)
