"""Compute the direction in which particles move, in tiles: no array has n x n x d elements, and none n x n.

Particles x_i with scores s_i = grad log p(x_i) move along (Liu and Wang 2016, equation 8)

    phi_i = 1/n sum_j [ k_ji s_j + grad_j k_ji ],    k_ji = exp(-|x_j - x_i|^2 / h)

With C the particles without their mean, the gradient of the kernel makes this two matrix products:

    phi = 1/n [ K (S - 2/h C) + 2/h diag(K 1) C ]

A column of ones beside S - 2/h C gives K 1 with the same product, and the exponents are one product, too:
-|c_j - c_i|^2 / h = (c_j, 1, -|c_j|^2 / h) (2 c_i / h, -|c_i|^2 / h, 1)'.

The directions run inside `jax.shard_map`: they see the rows of one device. The kernel Stein discrepancy, which measures
how far particles are from a distribution, is at the end.
"""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-call"
import jax
import jax.numpy as jnp
from jax import Array, lax

from srunbook.svgd.devices import AXIS, Layout

TILE_CPU = 1 << 20
"""Elements of the kernel matrix that are computed at a time on a CPU: 4 MiB of float32 stay in its caches."""

TILE_OTHER = 1 << 26
"""The same on GPUs, which need more work at a time."""

FEWEST_TILES = 4
"""A single tile was slower than several in trials on two cores; the reason is not known."""

MOST_TARGETS = 8192
"""Columns of a tile on a CPU, so that it keeps rows to multiply."""


def product(left: Array, right: Array) -> Array:
    """Multiply matrices in the full precision of their type, also on GPUs."""
    return jnp.matmul(left, right, precision=lax.Precision.HIGHEST)


def squared_norms(x: Array) -> Array:
    """Return the squared lengths of the rows, shape (rows, 1)."""
    return jnp.sum(x * x, axis=1, keepdims=True)


def gather(rows: Array) -> Array:
    """Gather the rows of all devices, in their order: shape (rows, ...) becomes (padded, ...)."""
    everyone: Array = lax.all_gather(rows, AXIS, tiled=True)
    return everyone


def centre(x: Array, layout: Layout) -> Array:
    """Subtract the mean of all particles from x, shape (rows, d); rows that only fill up become zero.

    Far from the origin, the distances that products give lose their digits.
    """
    mask = layout.mask()[:, None]
    mean = lax.psum(jnp.sum(jnp.where(mask, x, 0), axis=0), AXIS) / layout.n
    return jnp.where(mask, x - mean, 0)


def rbf_direction(centred: Array, scores: Array, h: Array, layout: Layout, everyone: Array) -> Array:
    """Compute the direction with the kernel exp(-|x - y|^2 / h) (Liu and Wang 2016, equation 8).

    `centred` are the particles of this device without the mean of all, (rows, d), `everyone` those of all, (padded, d).
    Scores and direction have the shape (rows, d); scores are zero in rows that only fill up.
    """
    targets = jnp.concatenate([(2 / h) * centred, -squared_norms(centred) / h, jnp.ones_like(centred[:, :1])], axis=1)
    sources = jnp.concatenate([everyone, jnp.ones_like(everyone[:, :1]), -squared_norms(everyone) / h], axis=1)
    particle = (jnp.arange(layout.padded) < layout.n)[:, None].astype(centred.dtype)
    summed = jnp.concatenate([gather(scores) - (2 / h) * everyone, particle], axis=1)
    sums = _weighted_sums(targets, sources, summed, on_cpu=layout.on_cpu)
    return (sums[:, :-1] + (2 / h) * sums[:, -1:] * centred) / layout.n


def linear_direction(x: Array, scores: Array, layout: Layout) -> Array:
    """Compute the direction with the kernel x.y + 1 (Liu and Wang 2018): mean(s) + (1/n S'X) x_i + x_i.

    Particles x, scores and direction have the shape (rows, d); scores are zero in rows that only fill up.
    """
    x = jnp.where(layout.mask()[:, None], x, 0)
    outer, total = lax.psum((product(scores.T, x), jnp.sum(scores, axis=0)), AXIS)
    direction: Array = total / layout.n + product(x, outer.T) / layout.n + x
    return direction


def _weighted_sums(targets: Array, sources: Array, summed: Array, *, on_cpu: bool) -> Array:
    """Compute exp(targets sources') summed, tile by tile: shapes (m, d + 2), (s, d + 2) and (s, k) give (m, k)."""
    count, k = targets.shape[0], summed.shape[1]
    pieces = -(-count // MOST_TARGETS) if on_cpu else 1
    columns = -(-count // pieces)
    height = max(1, min((TILE_CPU if on_cpu else TILE_OTHER) // columns, -(-sources.shape[0] // FEWEST_TILES)))
    tiles = blocks(sources, height), blocks(summed, height)

    def of_piece(piece: Array) -> Array:
        def add(sums: Array, tile: tuple[Array, Array]) -> tuple[Array, None]:
            kernel = jnp.exp(jnp.minimum(product(tile[0], piece.T), 0))
            return sums + product(tile[1].T, kernel), None

        return lax.scan(add, jnp.zeros((k, columns), targets.dtype), tiles)[0]

    if pieces == 1:
        return of_piece(targets).T
    sums = lax.map(of_piece, blocks(targets, columns))
    return jnp.moveaxis(sums, 1, 2).reshape(-1, k)[:count]


def blocks(rows: Array, height: int) -> Array:
    """Cut rows into blocks of one height, shape (blocks, height, columns); zeros fill up the last."""
    count = -(-rows.shape[0] // height)
    height = -(-rows.shape[0] // count)
    padded = jnp.pad(rows, ((0, count * height - rows.shape[0]), (0, 0)))
    return padded.reshape(count, height, rows.shape[1])


def kernel_stein_discrepancy(particles: Array, scores: Array) -> Array:
    """Compute the kernel Stein discrepancy with the kernel ``(1 + |x - y|^2)^-0.5``, as a V-statistic.

    It is 0 for the distribution itself. With this inverse multiquadric kernel it tends to 0 only if particles converge
    to it (Gorham and Mackey 2017, theorem 8). The Gaussian kernel would not see what SVGD itself makes 0.

    Args:
        particles: The particles, shape (n, d).
        scores: Gradients of the log density at the particles, shape (n, d).

    Returns:
        The discrepancy, a number of 0 or more, in units of the scores. Memory grows with n d.

    Raises:
        ValueError: The shapes differ.

    >>> x = jnp.array([[-1.0], [0.0], [1.0]])
    >>> round(float(kernel_stein_discrepancy(x, -x)), 3)
    0.336
    """
    particles, scores = jnp.asarray(particles), jnp.asarray(scores)
    if particles.ndim != 2 or particles.shape != scores.shape:
        raise ValueError(f"particles {particles.shape} and scores {scores.shape}: both have the shape (n, d)")
    discrepancy: Array = _discrepancy(particles - jnp.mean(particles, axis=0), scores)
    return discrepancy


@jax.jit
def _discrepancy(x: Array, s: Array) -> Array:
    """Compute the discrepancy of centred particles x with scores s, both of shape (n, d)."""
    n, d = x.shape
    tiles = blocks(jnp.concatenate([x, s, jnp.ones((n, 1), x.dtype)], axis=1), max(1, TILE_CPU // n))

    def add(total: Array, tile: Array) -> tuple[Array, None]:
        y, t, particle = tile[:, :d], tile[:, d : 2 * d], tile[:, -1:]
        squares = jnp.maximum(squared_norms(y) + squared_norms(x).T - 2 * product(y, x.T), 0)
        base = 1 + squares
        # (t - s) . (y - x), from products of the same kind
        crossed = jnp.sum(t * y, axis=1, keepdims=True) + jnp.sum(s * x, axis=1) - product(t, x.T) - product(y, s.T)
        terms = product(t, s.T) * base**-0.5 + (crossed + d) * base**-1.5 - 3 * squares * base**-2.5
        return total + jnp.sum(jnp.where(particle > 0, terms, 0)), None

    total = lax.scan(add, jnp.zeros((), x.dtype), tiles)[0]
    return jnp.sqrt(jnp.maximum(total, 0)) / n
