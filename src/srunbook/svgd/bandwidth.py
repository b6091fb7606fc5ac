"""Compute bandwidths from the median distance, of some pairs of particles or of all.

The rule of Liu and Wang (2016): h = median^2 / log n, so that the kernel summed over all particles is about 1.
The diagonal, where each particle meets itself, is left out. Medians come from counting, not from sorting.
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

from srunbook.svgd.devices import AXIS, Layout
from srunbook.svgd.kernel import TILE_CPU, blocks, product, squared_norms

PAIRS = 8192
"""How many pairs represent all: the median of their distances has a relative error of 0.5 % (root mean square)."""

MOST_EXACT = 1 << 16
"""Number of particles whose pairs can still be counted with 32 bits."""


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
    """
    points = everyone[pairs]
    squares = jnp.sum((points[:, 0] - points[:, 1]) ** 2, axis=1)
    median = _median(
        lambda bound: jnp.sum(squares <= bound, dtype=jnp.uint32),
        lambda bound: jnp.min(jnp.where(squares > bound, squares, jnp.inf)),
        pairs.shape[0],
        squares.dtype,
    )
    return _rule(median, centred, layout)


def exact(centred: Array, layout: Layout, everyone: Array) -> Array:
    """Compute the bandwidth h from the median of all distances, counted 31 times (float64: 63) and not stored."""
    if layout.n > MOST_EXACT:
        raise ValueError(
            f"bandwidth='exact_median' counts the pairs of {MOST_EXACT} particles at most, found {layout.n}; "
            "use bandwidth='median', whose error is 0.5 %"
        )
    numbers = jnp.arange(1, layout.padded + 1)
    own = lax.axis_index(AXIS) * layout.rows + jnp.arange(1, layout.rows + 1)
    height = max(1, TILE_CPU // layout.padded)
    tiles = blocks(centred, height), blocks(own[:, None], height)

    def over_tiles(measure: Callable[[Array, Array], Array], start: Array, join: Callable[..., Array]) -> Array:
        def add(total: Array, tile: tuple[Array, Array]) -> tuple[Array, None]:
            rows, who = tile  # numbers from 1; 0 fills up a tile
            squares = squared_norms(rows) + squared_norms(everyone).T - 2 * product(rows, everyone.T)
            counted = (who > 0) & (who <= layout.n) & (numbers <= layout.n) & (who != numbers)
            return join(total, measure(jnp.maximum(squares, 0), counted)), None

        return lax.scan(add, start, tiles)[0]

    def count(bound: Array) -> Array:
        def measure(squares: Array, counted: Array) -> Array:
            return jnp.sum((squares <= bound) & counted, dtype=jnp.uint32)

        found: Array = lax.psum(over_tiles(measure, jnp.uint32(0), jnp.add), AXIS)
        return found

    def above(bound: Array) -> Array:
        def measure(squares: Array, counted: Array) -> Array:
            return jnp.min(jnp.where((squares > bound) & counted, squares, jnp.inf))

        found: Array = lax.pmin(over_tiles(measure, jnp.array(jnp.inf, centred.dtype), jnp.minimum), AXIS)
        return found

    # Each pair is counted twice, so the median of the pairs is the median of what is counted.
    return _rule(_median(count, above, layout.n * (layout.n - 1), centred.dtype), centred, layout)


def _rule(median: Array, centred: Array, layout: Layout) -> Array:
    """Compute h = median^2 / log n, which never becomes 0: particles may lie on each other."""
    if layout.n == 1:
        return jnp.ones((), centred.dtype)
    mean_square = lax.psum(jnp.sum(squared_norms(centred)), AXIS) / layout.n
    least = jnp.finfo(centred.dtype).eps * mean_square
    h = jnp.maximum(median**2 / math.log(layout.n), least)
    return jnp.where(h > 0, h, 1)


def _median(count: Callable[[Array], Array], above: Callable[[Array], Array], total: int, dtype: Any) -> Array:
    """Find the median of the square roots of values of 0 or more.

    Floating-point numbers that are not negative are ordered as their bits are, so bisection ends after as many steps
    as there are bits. `count` says how many of the `total` values are at most its argument, `above` gives the smallest
    value that is larger.
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
    lower = value(lax.fori_loop(0, bits - 1, halve, (jnp.zeros((), word), infinite))[1])
    upper = jnp.where(count(lower) >= total // 2 + 1, lower, above(lower))
    return (jnp.sqrt(lower) + jnp.sqrt(upper)) / 2
