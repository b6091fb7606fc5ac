"""Compute bandwidths from the median distance, of some pairs of particles or of all.

The rule of Liu and Wang (2016): h = median^2 / log n, so that the kernel summed over all particles is about 1.
The diagonal, where each particle meets itself, is left out.
"""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-call"
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from srunbook.svgd._kernel import TILE_CPU, blocks, gather, product, squared_norms
from srunbook.svgd._layout import AXIS, Layout

PAIRS = 8192
"""How many pairs stand for all: the median of their distances has a relative error of 0.5 % (root mean square)."""

MOST_EXACT = 1 << 16
"""Number of particles whose pairs can still be counted with 32 bits."""


def some_pairs(key: Array, n: int) -> np.ndarray[Any, Any]:
    """Draw pairs of different particles, once for a run; take all pairs where there are `PAIRS` or fewer.

    Args:
        key: The random key.
        n: Number of particles.

    Returns:
        Their numbers, shape (pairs, 2).
    """
    if n * (n - 1) // 2 <= PAIRS:
        return np.stack(np.triu_indices(n, 1), axis=1).astype(np.int32)
    first_key, second_key = jax.random.split(key)
    first = np.asarray(jax.random.randint(first_key, (PAIRS,), 0, n))
    second = np.asarray(jax.random.randint(second_key, (PAIRS,), 0, n - 1))
    return np.stack([first, second + (second >= first)], axis=1).astype(np.int32)


def from_pairs(centred: Array, pairs: Array, layout: Layout, everyone: Array | None) -> Array:
    """Compute the bandwidth from the median distance of some pairs.

    Args:
        centred: Particles without their mean, shape (rows, d).
        pairs: Numbers of particles, shape (pairs, 2).
        layout: How the particles lie.
        everyone: The centred particles of all devices; None where they travel around the ring. Then the particles of
            the pairs are shared, of which each device gives those that it has.

    Returns:
        The bandwidth h, a squared length.
    """
    if everyone is not None:
        points = everyone[pairs]
    else:
        wanted = pairs.reshape(-1) - lax.axis_index(AXIS) * layout.rows
        own = (wanted >= 0) & (wanted < layout.rows)
        found = jnp.where(own[:, None], centred[jnp.clip(wanted, 0, layout.rows - 1)], 0)
        points = lax.psum(found, AXIS).reshape(-1, 2, centred.shape[1])
    squares = jnp.sum((points[:, 0] - points[:, 1]) ** 2, axis=1)
    median = _median(
        lambda bound: jnp.sum(squares <= bound, dtype=jnp.uint32),
        lambda bound: jnp.min(jnp.where(squares > bound, squares, jnp.inf)),
        pairs.shape[0],
        squares.dtype,
    )
    return rule(median, centred, layout)


def exact(centred: Array, layout: Layout, everyone: Array | None) -> Array:
    """Compute the bandwidth from the median of all distances, which are counted 31 times (float64: 63), not stored.

    Args:
        centred: Particles without their mean, shape (rows, d).
        layout: How the particles lie.
        everyone: The centred particles of all devices; None where they have to be gathered here.

    Returns:
        The bandwidth h, a squared length.
    """
    if everyone is None:
        everyone = gather(centred)
    numbers = jnp.arange(1, layout.padded + 1)
    own = lax.axis_index(AXIS) * layout.rows + jnp.arange(1, layout.rows + 1)
    height = max(1, TILE_CPU // layout.padded)
    rows, counted = blocks(centred, height), blocks(own[:, None], height)

    def over_tiles(measure: Callable[[Array, Array], Array], start: Array, join: Callable[..., Array]) -> Array:
        def add(total: Array, block: tuple[Array, Array]) -> tuple[Array, None]:
            tile, who = block  # numbers from 1; 0 fills up a tile
            squares = squared_norms(tile) + squared_norms(everyone).T - 2 * product(tile, everyone.T)
            real = (who > 0) & (who <= layout.n) & (numbers <= layout.n) & (who != numbers)
            return join(total, measure(jnp.maximum(squares, 0), real)), None

        return lax.scan(add, start, (rows, counted))[0]

    def count(bound: Array) -> Array:
        found = over_tiles(
            lambda squares, real: jnp.sum((squares <= bound) & real, dtype=jnp.uint32), jnp.uint32(0), jnp.add
        )
        everywhere: Array = lax.psum(found, AXIS)
        return everywhere

    def above(bound: Array) -> Array:
        found = over_tiles(
            lambda squares, real: jnp.min(jnp.where((squares > bound) & real, squares, jnp.inf)),
            jnp.array(jnp.inf, centred.dtype),
            jnp.minimum,
        )
        least: Array = lax.pmin(found, AXIS)
        return least

    # Each pair is counted twice, so the median of the pairs is the median of what is counted.
    median = _median(count, above, layout.n * (layout.n - 1), centred.dtype)
    return rule(median, centred, layout)


def rule(median: Array, centred: Array, layout: Layout) -> Array:
    """Compute h = median^2 / log n (Liu and Wang 2016), which never becomes 0: particles may lie on each other.

    Args:
        median: The median distance.
        centred: Particles of this device without the mean of all, shape (rows, d).
        layout: How the particles lie.
    """
    if layout.n == 1:
        return jnp.ones((), centred.dtype)
    mean_square = lax.psum(jnp.sum(squared_norms(centred)), AXIS) / layout.n
    least = jnp.finfo(centred.dtype).eps * mean_square
    h = jnp.maximum(median**2 / math.log(layout.n), least)
    return jnp.where(h > 0, h, 1)


def _median(count: Callable[[Array], Array], above: Callable[[Array], Array], total: int, dtype: Any) -> Array:
    """Find the median of the square roots of values of 0 or more, from how many are not larger than a bound.

    Floating-point numbers that are not negative are ordered as their bits are, so bisection ends after as many steps
    as there are bits.

    Args:
        count: How many values are not larger than its argument.
        above: The smallest value that is larger than its argument.
        total: How many values there are.
        dtype: Their type.
    """
    if total == 0:
        return jnp.zeros((), dtype)
    bits = jnp.finfo(dtype).bits
    word = jnp.uint32 if bits == 32 else jnp.uint64
    rank = (total + 1) // 2

    def value(pattern: Array) -> Array:
        return lax.bitcast_convert_type(pattern, dtype)

    def halve(_: int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = low + (high - low) // 2
        enough = count(value(middle)) >= rank
        return jnp.where(enough, low, middle + 1), jnp.where(enough, middle, high)

    infinite = lax.bitcast_convert_type(jnp.array(jnp.inf, dtype), word)
    pattern = lax.fori_loop(0, bits - 1, halve, (jnp.zeros((), word), infinite))[1]
    lower = value(pattern)
    upper = jnp.where(count(lower) >= total // 2 + 1, lower, above(lower))
    return (jnp.sqrt(lower) + jnp.sqrt(upper)) / 2
