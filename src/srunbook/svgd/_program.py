"""The direction over all devices, and a number of steps as one compiled loop."""

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

from srunbook.svgd import _bandwidth, _kernel
from srunbook.svgd._layout import AXIS, Layout
from srunbook.svgd._target import Target

Bandwidth: TypeAlias = Literal["median", "exact_median"] | float | Callable[[Array], Array]
Program: TypeAlias = Callable[..., Any]
"""A loop as `compile_steps` returns it."""

LOOKS = 32
"""In so many steps the log densities of all particles are looked at, for a score costs less without the density."""


@dataclass(frozen=True, eq=False)
class Settings:
    """What defines the step of a sampler; `SVGD` has checked it.

    Args:
        target: The distribution.
        optimizer: An optax optimizer, which gets minus the direction as its gradient.
        bandwidth: The bandwidth h, a squared length, or the rule that gives it.
        kernel: The kernel.
        exchange: Whether particles are gathered on each device, or travel around the ring of devices.
        mesh: The devices, along one axis.
    """

    target: Target
    optimizer: optax.GradientTransformation
    bandwidth: Bandwidth
    kernel: Literal["rbf", "linear"]
    exchange: Literal["all_gather", "ring"]
    mesh: Mesh

    def layout(self, n: int) -> Layout:
        """Lay out n particles on the devices."""
        on_cpu = self.mesh.devices.flat[0].platform == "cpu"
        return Layout(n, self.mesh.devices.size, self.exchange == "ring", on_cpu)


def pairs_for_median(settings: Settings, key: Array, n: int) -> np.ndarray[Any, Any]:
    """Draw the pairs whose distances give the bandwidth.

    Returns:
        Numbers of particles, shape (pairs, 2); no pairs where the bandwidth needs none.
    """
    if settings.kernel != "rbf" or settings.bandwidth != "median":
        return np.zeros((0, 2), np.int32)
    return _bandwidth.some_pairs(jax.random.fold_in(key, 1), n)


def direction_over(settings: Settings, layout: Layout) -> Callable[..., tuple[Array, Array, Array]]:
    """Make the function that computes the direction of all particles.

    Args:
        settings: The settings.
        layout: How the particles lie.

    Returns:
        A function of particles (padded, d), data, pairs, batch key and step. It returns the direction (padded, d), the
        bandwidth, and how many scores are not finite, with the log densities of some of the particles: those of others
        at other steps, so that `LOOKS` steps see all.
    """
    target = settings.target

    def local(x: Array, data: Any, pairs: Array, key: Array, step: Array) -> tuple[Array, Array, Array]:
        mask = layout.mask()[:, None]
        batch = target.batch(data, key, step)
        scores = target.scores(x, batch)
        wrong = jnp.sum(mask[:, 0] & ~jnp.all(jnp.isfinite(scores), axis=1))
        height = -(-layout.rows // LOOKS)
        first = step % -(-layout.rows // height) * height  # the last part may overlap the one before it
        part, real = (lax.dynamic_slice_in_dim(rows, first, height) for rows in (x, mask[:, 0]))
        wrong += jnp.sum(real & ~jnp.isfinite(target.values(part, batch)))
        scores = jnp.where(mask, scores, 0)
        if settings.kernel == "linear":
            phi, h = _kernel.linear_direction(x, scores, layout), jnp.ones((), x.dtype)
        else:
            centred = _kernel.centre(x, layout)
            everyone = None if layout.ring else _kernel.gather(centred)
            h = _bandwidth_of(settings.bandwidth, x, centred, everyone, pairs, layout)
            phi = _kernel.rbf_direction(centred, scores, h, layout, everyone)
        return jnp.where(mask, phi, 0), h, lax.psum(wrong, AXIS)

    return jax.shard_map(
        local,
        mesh=settings.mesh,
        in_specs=(Spec(AXIS), Spec(), Spec(), Spec(), Spec()),
        out_specs=(Spec(AXIS), Spec(), Spec()),
        check_vma=False,
    )


def _bandwidth_of(
    bandwidth: Bandwidth, x: Array, centred: Array, everyone: Array | None, pairs: Array, layout: Layout
) -> Array:
    """Compute the bandwidth h, a squared length, from the particles of this device and of all."""
    if bandwidth == "median":
        return _bandwidth.from_pairs(centred, pairs, layout, everyone)
    if bandwidth == "exact_median":
        if layout.n > _bandwidth.MOST_EXACT:
            raise ValueError(
                f"bandwidth='exact_median' counts the pairs of {_bandwidth.MOST_EXACT} particles at most, found "
                f"{layout.n}; use bandwidth='median', whose error is 0.5 %"
            )
        return _bandwidth.exact(centred, layout, everyone)
    if callable(bandwidth):
        h: Array = jnp.asarray(bandwidth(lax.all_gather(x, AXIS, tiled=True)[: layout.n]), x.dtype)
        if h.shape != ():
            raise ValueError(
                f"bandwidth(particles) has the shape {h.shape}; it is one number, as in lambda x: jnp.var(x)"
            )
        return h
    return jnp.asarray(bandwidth, x.dtype)


def densities_over(settings: Settings, *, scores: bool) -> Callable[..., Any]:
    """Make the function that computes the log densities that a step sees.

    Args:
        settings: The settings.
        scores: Whether it computes the scores, too.

    Returns:
        A function of particles (padded, d), data, batch key and step. It returns the log densities, shape (padded,),
        or these and the scores, shape (padded, d).
    """
    target = settings.target
    compute = target.values_and_scores if scores else target.values

    def local(x: Array, data: Any, key: Array, step: Array) -> Any:
        return compute(x, target.batch(data, key, step))

    specs = (Spec(AXIS), Spec(), Spec(), Spec())
    return jax.jit(jax.shard_map(local, mesh=settings.mesh, in_specs=specs, out_specs=Spec(AXIS), check_vma=False))


def count_infinite(settings: Settings, layout: Layout) -> Callable[..., Array]:
    """Make the function that counts the particles whose place or log density is not finite.

    Returns:
        A compiled function of particles (padded, d), data, batch key and step.
    """
    densities = densities_over(settings, scores=False)

    def count(x: Array, data: Any, key: Array, step: Array) -> Array:
        fine = jnp.isfinite(densities(x, data, key, step)) & jnp.all(jnp.isfinite(x), axis=1)
        return jnp.sum(~fine & (jnp.arange(layout.padded) < layout.n))

    return jax.jit(count)


def compile_steps(settings: Settings, layout: Layout, length: int) -> Program:
    """Make a number of steps one compiled loop, which overwrites the state it is given.

    Particles stay where they are from the step on at which a log density or score is seen not to be finite.

    Args:
        settings: The settings.
        layout: How the particles lie.
        length: Number of steps.

    Returns:
        A function of the state (particles, opt_state), the number of steps that it has made, data, pairs and batch key.
        It returns the state after the steps, and for each step the bandwidth, the root mean square of the directions'
        lengths, and how many scores and log densities were seen not to be finite, each of shape (length,).
    """
    direction = direction_over(settings, layout)

    def step(carry: Any, number: Array, data: Any, pairs: Array, key: Array) -> Any:
        x, opt_state, failed = carry
        phi, h, wrong = direction(x, data, pairs, key, number)
        failed = failed | (wrong > 0)
        updates, opt_state = settings.optimizer.update(-phi, opt_state, x)
        x = jnp.where(failed, x, optax.apply_updates(x, updates))
        return (x, opt_state, failed), (h, jnp.sqrt(jnp.sum(phi * phi) / layout.n), wrong)

    def steps(state: Any, first: Array, data: Any, pairs: Array, key: Array) -> Any:
        numbers = first + jnp.arange(length, dtype=jnp.int32)
        start = (*state, jnp.zeros((), bool))
        (*state, _), trace = lax.scan(lambda carry, number: step(carry, number, data, pairs, key), start, numbers)
        return tuple(state), trace

    return jax.jit(steps, donate_argnums=0)
