"""Identify a run: what its checkpoints write down, and what is compared before a run goes on from them.

Processors, GPUs and versions of JAX round in different ways, so digests of bits would tell apart what is the same.
Numbers are compared up to a tolerance, and functions by what they give at a few places.
"""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-call"
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from srunbook.svgd._layout import to_host
from srunbook.svgd._program import Settings
from srunbook.svgd._result import Floats
from srunbook.svgd._target import Target

POINTS = 4
"""At so many of the initial particles the scores are compared."""

COUNTS = (0, 1, 10, 100, 1000, 10_000, 100_000)
"""After so many steps the optimizer's next step is compared, because steps may follow a schedule."""

PIECE = 1 << 16
"""Elements of an array that are summed up at a time."""

SAME_ARRAY = 1e-6
"""By how much the sums of an array may differ, as a share of the sum of its absolute values."""

FOLLOWS = {
    "initial particles": ("bandwidth", "log_density", "log_likelihood", "optimizer"),
    "data": ("log_likelihood",),
    "batch_size": ("log_likelihood",),
}
"""What is compared at the initial particles or with the data, and says nothing where these differ."""

SAME_FUNCTION = 1e-3
"""By how much the values of a function may differ, as a share of the largest."""


def identity(settings: Settings, data: Any, start: Floats) -> dict[str, Any]:
    """Describe what makes a run the run that it is; devices and processes have no part in it.

    Args:
        settings: The settings.
        data: The data of the target.
        start: The particles to start from, shape (n, d).

    Returns:
        By name a `word`, which is compared exactly, and `numbers`, lists compared up to rounding; JSON can hold it.
    """
    rows = [leaf for leaf in jax.tree.leaves(data) if getattr(leaf, "is_fully_addressable", True)]
    scores = [to_host(array, settings.mesh) for array in _scores(settings.target, data, start[:POINTS])]
    return {
        "kernel": _entry(settings.kernel),
        "batch_size": _entry(str(settings.target.batch_size)),
        "bandwidth": _bandwidth(settings, start),
        "initial particles": _entry("", _sums(start)),
        "data": _entry(str([np.shape(leaf) for leaf in rows]), *map(_sums, rows)),
        "log_density": _entry("", scores[0]),
        "log_likelihood": _entry("", *scores[1:]),
        "optimizer": _entry("", *_updates(settings.optimizer, start[:POINTS])),
    }


def densities(settings: Settings, data: Any, start: Floats) -> Floats:
    """Compute log densities of some initial particles, with the first rows of the data: processes must agree in them.

    Args:
        settings: The settings.
        data: The data of the target.
        start: The particles to start from, shape (n, d).

    Returns:
        The log densities, shape (points,), with zeros where they are not numbers.
    """
    target = settings.target
    rows = jax.tree.map(lambda array: array[: target.batch_size], data)
    found: Floats = to_host(jax.jit(jax.vmap(target.value, (0, None)))(start[:POINTS], rows), settings.mesh)
    return np.nan_to_num(found)


def agree(one: Floats, other: Floats) -> bool:
    """Tell whether two processes have the same density, up to rounding."""
    return _close(one.tolist(), other.tolist(), SAME_FUNCTION)


def differences(saved: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Name what differs between two runs, without what may differ only because something else does.

    Args:
        saved: The identity of the run of a checkpoint.
        now: That of this run.
    """

    def same(name: str) -> bool:
        one, other = saved.get(name), now[name]
        if one is None or one["word"] != other["word"] or len(one["numbers"]) != len(other["numbers"]):
            return False
        share = SAME_ARRAY if name in ("initial particles", "data") else SAME_FUNCTION
        return all(_close(*pair, share) for pair in zip(one["numbers"], other["numbers"], strict=True))

    names = [name for name in now if not same(name)]
    follows = {other for name in names for other in FOLLOWS.get(name, ())}
    return [name for name in names if name not in follows]


def _close(one: list[float], other: list[float], share: float) -> bool:
    """Tell whether all numbers differ by no more than a share of the largest."""
    if len(one) != len(other):
        return False
    largest = max(map(abs, (*one, *other)), default=0.0)
    return all(abs(a - b) <= share * largest for a, b in zip(one, other, strict=True))


def _entry(word: str, *numbers: Any) -> dict[str, Any]:
    """Make an entry of the form that checkpoints hold."""
    return {"word": word, "numbers": [np.nan_to_num(np.asarray(row, float)).reshape(-1).tolist() for row in numbers]}


def _bandwidth(settings: Settings, start: Floats) -> dict[str, Any]:
    """Describe the bandwidth: its rule, or its value, which a function gives for the initial particles."""
    h = settings.bandwidth
    if isinstance(h, str) or settings.kernel == "linear":
        return _entry(str(h) if isinstance(h, str) else "")
    if callable(h):
        return _entry("a function", to_host(jnp.asarray(jax.jit(h)(start)), settings.mesh))
    return _entry("a number", h)


def _sums(array: Any) -> tuple[float, float]:
    """Sum up the absolute values, and the elements with a weight of its own for each, so that order counts."""
    flat = np.asarray(array).reshape(-1)
    weights = np.cos(np.arange(min(len(flat), PIECE)))
    total = mixed = 0.0
    for number, first in enumerate(range(0, len(flat), PIECE)):
        piece = flat[first : first + PIECE].astype(float)
        total += float(np.abs(piece).sum())
        mixed += float(np.cos(number) * (piece @ weights[: len(piece)]))
    return total, mixed


def _scores(target: Target, data: Any, points: Floats) -> tuple[Array, ...]:
    """Compute scores at some points, shape (points, d): of the log density, and where there are data of the likelihood.

    The likelihood is that of as many rows as a step takes, here the first.
    """
    rows = jax.tree.map(lambda array: array[: target.batch_size], data)

    @jax.jit
    def compute(x: Array, rows: Any) -> tuple[Array, ...]:
        alone = Target(target.log_density).scores(x, None)
        if target.log_likelihood is None:
            return (alone,)
        likelihood = target.log_likelihood
        return alone, Target(lambda particle: likelihood(particle, rows)).scores(x, None)

    found: tuple[Array, ...] = compute(points, rows)
    return found


def _updates(optimizer: Any, points: Floats) -> list[np.ndarray[Any, Any]]:
    """Compute what the optimizer makes of one gradient after numbers of steps, to which all its counters are set."""

    def after(count: Array) -> Array:
        opt_state = jax.tree.map(
            lambda leaf: count.astype(jnp.result_type(leaf)) if _is_counter(leaf) else leaf,
            optimizer.init(jnp.asarray(points)),
        )
        gradient = jnp.cos(jnp.arange(points.size, dtype=points.dtype)).reshape(points.shape)
        update: Array = optimizer.update(gradient, opt_state, jnp.asarray(points))[0]
        return update

    return list(np.asarray(jax.jit(jax.vmap(after))(np.array(COUNTS, np.int32))))


def _is_counter(leaf: Any) -> bool:
    return jnp.shape(leaf) == () and bool(jnp.issubdtype(jnp.result_type(leaf), jnp.integer))
