"""Compute the direction in which particles move, in tiles: no array has n x n x d elements, and none n x n.

Particles x_i with scores s_i = grad log p(x_i) move along (Liu and Wang 2016, equation 8)

    phi_i = 1/n sum_j [ k_ji s_j + grad_j k_ji ],    k_ji = exp(-|x_j - x_i|^2 / h)

With C the particles without their mean, the gradient of the kernel makes this two matrix products:

    phi = 1/n [ K (S - 2/h C) + 2/h diag(K 1) C ]

A column of ones beside S - 2/h C gives K 1 with the same product, and the exponents are one product, too:
-|c_j - c_i|^2 / h = (c_j, 1, -|c_j|^2 / h) (2 c_i / h, -|c_i|^2 / h, 1)'.

All functions here run inside `jax.shard_map`: they see the rows of one device.
"""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-call"
import warnings

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from srunbook.svgd._layout import AXIS, Layout
from srunbook.svgd._result import Floats, PrecisionWarning

TILE_CPU = 1 << 20
"""Elements of the kernel matrix that are computed at a time on a CPU: 4 MiB of float32 stay in its caches."""

TILE_OTHER = 1 << 26
"""The same on GPUs, which need more work at a time."""

FEWEST_TILES = 4
"""A single tile was slower than several in trials on two cores; the reason is not known."""

MOST_TARGETS = 8192
"""Columns of a tile on a CPU, so that it keeps rows to multiply."""

MOST_ROUNDING = 0.01
"""From this share of the largest direction on, rounding is warned of."""


def product(left: Array, right: Array) -> Array:
    """Multiply matrices in the full precision of their type, also on GPUs."""
    return jnp.matmul(left, right, precision=lax.Precision.HIGHEST)


def centre(x: Array, layout: Layout) -> Array:
    """Subtract the mean of all particles.

    The distances that products give lose their digits where the particles are far from the origin.

    Args:
        x: Particles of this device, shape (rows, d).
        layout: How the particles lie.

    Returns:
        The centred particles, shape (rows, d); zero where a row only fills up.
    """
    mask = layout.mask()[:, None]
    mean = lax.psum(jnp.sum(jnp.where(mask, x, 0), axis=0), AXIS) / layout.n
    return jnp.where(mask, x - mean, 0)


def rbf_direction(centred: Array, scores: Array, h: Array, layout: Layout, everyone: Array | None) -> Array:
    """Compute the direction with the kernel exp(-|x - y|^2 / h) (Liu and Wang 2016, equation 8).

    Args:
        centred: Particles without their mean, shape (rows, d).
        scores: Gradients of the log density, shape (rows, d); zero where a row only fills up.
        h: The bandwidth, a squared length.
        layout: How the particles lie.
        everyone: The centred particles of all devices, shape (padded, d); None where they travel around the ring.

    Returns:
        The direction, shape (rows, d).
    """
    one = jnp.ones_like(centred[:, :1])
    targets = jnp.concatenate([(2 / h) * centred, -squared_norms(centred) / h, one], axis=1)
    if everyone is None:
        sums = _around(targets, _sources(centred, scores, h, layout.mask()), h, layout)
    else:
        sums = _tiles(targets, _sources(everyone, gather(scores), h, jnp.arange(layout.padded) < layout.n), h, layout)
    return (sums[:, :-1] + (2 / h) * sums[:, -1:] * centred) / layout.n


def gather(rows: Array) -> Array:
    """Gather the rows of all devices, in their order: shape (rows, ...) becomes (padded, ...)."""
    everyone: Array = lax.all_gather(rows, AXIS, tiled=True)
    return everyone


def _sources(centred: Array, scores: Array, h: Array, real: Array) -> Array:
    """Return (c, s - 2 c / h, 1) of each particle, shape (rows, 2 d + 1): what sets its weights, what they weigh."""
    pull = scores - (2 / h) * centred  # zero where a row only fills up
    return jnp.concatenate([centred, pull, real[:, None].astype(centred.dtype)], axis=1)


def linear_direction(x: Array, scores: Array, layout: Layout) -> Array:
    """Compute the direction with the kernel x.y + 1 (Liu and Wang 2018): mean(s) + (1/n S'X) x_i + x_i.

    All devices sum one d x d matrix.

    Args:
        x: Particles of this device, shape (rows, d).
        scores: Gradients of the log density, shape (rows, d); zero where a row only fills up.
        layout: How the particles lie.

    Returns:
        The direction, shape (rows, d).
    """
    x = jnp.where(layout.mask()[:, None], x, 0)
    outer, total = lax.psum((product(scores.T, x), jnp.sum(scores, axis=0)), AXIS)
    direction: Array = total / layout.n + product(x, outer.T) / layout.n + x
    return direction


def squared_norms(x: Array) -> Array:
    """Return the squared lengths of the rows, shape (rows, 1)."""
    return jnp.sum(x * x, axis=1, keepdims=True)


def _around(targets: Array, sources: Array, h: Array, layout: Layout) -> Array:
    """Sum over all sources, which travel once around the ring of devices; arguments as for `_tiles`."""
    to_next = [(shard, (shard + 1) % layout.shards) for shard in range(layout.shards)]

    def visit(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        sums, travelling = carry
        sums = sums + _tiles(targets, travelling, h, layout)
        return (sums, lax.ppermute(travelling, AXIS, to_next)), None

    d = targets.shape[1] - 2
    start = jnp.zeros((targets.shape[0], d + 1), targets.dtype)
    return lax.scan(visit, (start, sources), None, length=layout.shards)[0][0]


def _tiles(targets: Array, sources: Array, h: Array, layout: Layout) -> Array:
    """Sum for each target the sources' last columns, weighted with the kernel.

    Args:
        targets: (2 c / h, -|c|^2 / h, 1), shape (m, d + 2).
        sources: (c, what is summed), shape (s, d + d + 1).
        h: The bandwidth.
        layout: Says what computes.

    Returns:
        The sums, shape (m, d + 1).
    """
    d = targets.shape[1] - 2
    centred, summed = sources[:, :d], sources[:, d:]
    left = jnp.concatenate([centred, jnp.ones_like(centred[:, :1]), -squared_norms(centred) / h], axis=1)
    pieces = -(-targets.shape[0] // MOST_TARGETS) if layout.on_cpu else 1
    columns = -(-targets.shape[0] // pieces)
    height = max(1, min((TILE_CPU if layout.on_cpu else TILE_OTHER) // columns, -(-sources.shape[0] // FEWEST_TILES)))
    lefts, summeds = blocks(left, height), blocks(summed, height)

    def of_piece(piece: Array) -> Array:
        right = piece.T

        def add(sums: Array, block: tuple[Array, Array]) -> tuple[Array, None]:
            kernel = jnp.exp(jnp.minimum(product(block[0], right), 0))
            return sums + product(block[1].T, kernel), None

        return lax.scan(add, jnp.zeros((d + 1, columns), targets.dtype), (lefts, summeds))[0]

    if pieces == 1:
        return of_piece(targets).T
    sums = lax.map(of_piece, blocks(targets, columns))
    return jnp.moveaxis(sums, 1, 2).reshape(-1, d + 1)[: targets.shape[0]]


def blocks(rows: Array, height: int) -> Array:
    """Cut rows into blocks of one height, shape (blocks, height, columns); zeros fill up the last."""
    count = -(-rows.shape[0] // height)
    height = -(-rows.shape[0] // count)
    padded = jnp.pad(rows, ((0, count * height - rows.shape[0]), (0, 0)))
    return padded.reshape(count, height, rows.shape[1])


def warn_of_rounding(particles: Floats, h: float, stacklevel: int) -> None:
    """Warn where the kernel is so narrow against the spread of the particles that rounding changes directions.

    The exponent -|c_j - c_i|^2 / h is a sum of terms up to |c|^2 / h, each of which rounds. A direction may be off by
    about eps |c|^2 / h of the largest direction.

    Args:
        particles: All particles, shape (n, d).
        h: The bandwidth, a squared length.
        stacklevel: Whose line is named, as in `warnings.warn`.
    """
    away = particles - particles.mean(axis=0, dtype=float)
    squared = float(np.max(np.sum(away * away, axis=1)))
    share = float(np.finfo(particles.dtype).eps) * squared / h
    if share > MOST_ROUNDING:
        warnings.warn(
            f"particles lie up to {squared**0.5:.3g} from their mean, and the bandwidth is {h:.3g}, a length of "
            f"{h**0.5:.3g}: {particles.dtype} then rounds directions by about {100 * share:.2g} % of the largest; "
            "use a larger bandwidth, or float64 particles with JAX_ENABLE_X64=1",
            PrecisionWarning,
            stacklevel=stacklevel,
        )
