"""Compute the kernel Stein discrepancy: how far particles are from a distribution whose scores are known."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax

from srunbook.svgd._arguments import real
from srunbook.svgd._kernel import blocks, product

TILE = 1 << 20


def kernel_stein_discrepancy(particles: Array, scores: Array, *, c: float = 1.0, beta: float = -0.5) -> Array:
    """Compute the kernel Stein discrepancy with the kernel ``(c^2 + |x - y|^2)^beta``, as a V-statistic.

    It is 0 for the distribution itself. With this inverse multiquadric kernel it tends to 0 only where particles
    converge to it (Gorham and Mackey 2017, theorem 8). The Gaussian kernel would be blind to what SVGD itself makes 0.

    Args:
        particles: The particles, shape (n, d).
        scores: Gradients of the log density there, shape (n, d).
        c: A length of the kernel, in units of the particles.
        beta: Its exponent, between -1 and 0.

    Returns:
        The discrepancy, a number of 0 or more, in units of the scores. Memory grows with n d.

    Raises:
        ValueError: Shapes differ, or an argument is out of range.

    >>> x = jnp.array([[-1.0], [0.0], [1.0]])
    >>> round(float(kernel_stein_discrepancy(x, -x)), 3)
    0.336
    """
    particles, scores = jnp.asarray(particles), jnp.asarray(scores)
    if particles.ndim != 2 or particles.shape != scores.shape:
        raise ValueError(f"particles {particles.shape} and scores {scores.shape}: both have the shape (n, d)")
    if not (0 < real(c) < float("inf") and -1 < real(beta) < 0):
        raise ValueError(f"c={c!r}, beta={beta!r}: needs c > 0 and -1 < beta < 0, as in c=1.0, beta=-0.5")
    discrepancy: Array = _ksd(particles - jnp.mean(particles, axis=0), scores, c, beta)
    return discrepancy


@jax.jit
def _ksd(x: Array, s: Array, c: float, beta: float) -> Array:
    """Compute the discrepancy of centred particles x with scores s, both of shape (n, d)."""
    n, d = x.shape
    height = max(1, TILE // n)
    tiles = blocks(jnp.concatenate([x, s, jnp.ones((n, 1), x.dtype)], axis=1), height)

    def add(total: Array, block: Array) -> tuple[Array, None]:
        y, t, real = block[:, :d], block[:, d : 2 * d], block[:, -1:]
        squares = jnp.sum(y * y, axis=1, keepdims=True) + jnp.sum(x * x, axis=1) - 2 * product(y, x.T)
        squares = jnp.maximum(squares, 0)
        base = c**2 + squares
        # (t - s) . (y - x), from products of the same kind
        crossed = jnp.sum(t * y, axis=1, keepdims=True) + jnp.sum(s * x, axis=1) - product(t, x.T) - product(y, s.T)
        terms = (
            product(t, s.T) * base**beta
            - 2 * beta * crossed * base ** (beta - 1)
            - 2 * beta * d * base ** (beta - 1)
            - 4 * beta * (beta - 1) * squares * base ** (beta - 2)
        )
        return total + jnp.sum(jnp.where(real > 0, terms, 0)), None

    total = lax.scan(add, jnp.zeros((), x.dtype), tiles)[0]
    return jnp.sqrt(jnp.maximum(total, 0)) / n
