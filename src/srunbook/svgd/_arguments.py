"""Check what a caller passes, and refuse everything else with what was found and what is allowed."""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-call"
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from srunbook.svgd._result import Floats

MOST = 2**31 - 1
"""The largest whole number that is taken: steps and particles are counted with 32 bits."""


def one_of(name: str, value: str, allowed: tuple[str, ...], more: str = "") -> None:
    """Raise ValueError where a value is not one of those that are allowed."""
    if value not in allowed:
        choices = " or ".join(map(repr, allowed)) + (f", {more}" if more else "")
        raise ValueError(f"{name}={value!r}: it is {choices}, as in {name}={allowed[0]!r}")


def whole(name: str, value: Any, least: int, example: str, most: int = MOST) -> int:
    """Return a whole number of Python or NumPy, which is no truth value; raise ValueError for anything else.

    >>> whole("n_steps", np.int64(7), 0, "n_steps=1000")
    7
    """
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = least - 1
    if not least <= number <= most:
        raise ValueError(f"{name}={value!r}: it is a whole number, {least} to {most}, as in {example}")
    return number


def real(value: Any) -> float:
    """Return a number of Python, NumPy or JAX as a float; NaN for anything else, such as truth values and texts.

    >>> real(np.float32(0.5)), real(True), real("1")
    (0.5, nan, nan)
    """
    if np.ndim(value) or isinstance(value, bool | np.bool_ | str | bytes):
        return float("nan")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def one_key(key: Any) -> Array:
    """Return one random key; the older kind, an array of numbers, is taken, too."""
    if isinstance(key, Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == ():
        return key
    if isinstance(key, Array | np.ndarray) and key.dtype == np.uint32 and key.ndim == 1:
        wrapped: Array = jax.random.wrap_key_data(jnp.asarray(key))
        return wrapped
    raise ValueError(f"key={key!r}: it is one random key, as in jax.random.key(0)")


def finite_places(particles: Any) -> Floats:
    """Return particles, shape (n, d), as an array of JAX's own floating-point type; raise ValueError for others."""
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
