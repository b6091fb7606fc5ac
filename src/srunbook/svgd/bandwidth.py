"""Compute the bandwidth from the median distance of some pairs of particles.

The rule of Liu and Wang (2016): h = median^2 / log n, so that the kernel summed over all particles is about 1.
"""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-call"
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from srunbook.svgd.devices import AXIS, Layout
from srunbook.svgd.kernel import product, squared_norms

PAIRS = 8192
"""How many pairs represent all: the median of their distances has a relative error of 0.5 % (root mean square)."""


def some_pairs(key: Array, n: int) -> np.ndarray[Any, Any]:
    """Draw the numbers of pairs of different particles, shape (pairs, 2); take all if there are `PAIRS` or fewer."""
    if n * (n - 1) // 2 <= PAIRS:
        return np.stack(np.triu_indices(n, 1), axis=1).astype(np.int32)
    first_key, second_key = jax.random.split(key)
    first = np.asarray(jax.random.randint(first_key, (PAIRS,), 0, n))
    second = np.asarray(jax.random.randint(second_key, (PAIRS,), 0, n - 1))
    return np.stack([first, second + (second >= first)], axis=1).astype(np.int32)


def from_pairs(centred: Array, pairs: Array, layout: Layout, everyone: Array) -> Array:
    """Compute the bandwidth h, a squared length, from the median distance of pairs, shape (pairs, 2).

    `centred` are the particles of this device without the mean of all, (rows, d), `everyone` those of all, (padded, d).
    h never becomes 0: particles may lie on each other.
    """
    if layout.n == 1:
        return jnp.ones((), centred.dtype)
    median = _median_root(_squared_distances(everyone, pairs, layout.n))
    mean_square = lax.psum(jnp.sum(squared_norms(centred)), AXIS) / layout.n
    least = jnp.finfo(centred.dtype).eps * mean_square
    h = jnp.maximum(median**2 / math.log(layout.n), least)
    return jnp.where(h > 0, h, 1)


def _squared_distances(everyone: Array, pairs: Array, n: int) -> Array:
    """Compute the squared distance of each pair, shape (pairs,).

    With few particles, a matrix product of all with all takes less time on a CPU than to gather the rows of each pair.
    """
    first, second = pairs[:, 0], pairs[:, 1]
    if n * n > 16 * len(pairs):
        return squared_norms(everyone[first] - everyone[second])[:, 0]
    norms = squared_norms(everyone)
    return jnp.maximum(norms + norms.T - 2 * product(everyone, everyone.T), 0)[first, second]


def _median_root(values: Array) -> Array:
    """Find the median of the square roots of values of 0 or more.

    They are counted: on a CPU, sorting takes 50 times as long. Floating-point numbers that are not negative are
    ordered as their bits are, so bisection ends after as many steps as there are bits. A CPU counts faster if it first
    adds 16 parts, element by element.
    """
    parts = jnp.pad(values, (0, -len(values) % 16), constant_values=jnp.inf).reshape(16, -1)
    bits = jnp.finfo(values.dtype).bits
    word = jnp.uint32 if bits == 32 else jnp.uint64

    def count(bound: Array) -> Array:
        return jnp.sum(sum(part <= bound for part in parts))

    def halve(_: int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = low + (high - low) // 2
        enough = count(lax.bitcast_convert_type(middle, values.dtype)) >= (len(values) + 1) // 2
        return jnp.where(enough, low, middle + 1), jnp.where(enough, middle, high)

    infinite = lax.bitcast_convert_type(jnp.array(jnp.inf, values.dtype), word)
    pattern = lax.fori_loop(0, bits - 1, halve, (jnp.zeros((), word), infinite))[1]
    lower = lax.bitcast_convert_type(pattern, values.dtype)
    above = jnp.min(jnp.where(values > lower, values, jnp.inf))
    upper = jnp.where(count(lower) > len(values) // 2, lower, above)
    return (jnp.sqrt(lower) + jnp.sqrt(upper)) / 2
