"""Phase-type distributions that have names."""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-call"
from typing import Any

import jax.numpy as jnp
from jax import Array

from srunbook.phase_type._checks import check_positive
from srunbook.phase_type._distributions import Continuous, Discrete


def _first(m: int, dtype: Any) -> Array:
    return jnp.zeros(m, dtype).at[0].set(1)


def hypoexponential(rates: Any) -> Continuous:
    """Return the sum of independent exponential times: states in a row.

    Args:
        rates: The rate of each, shape (m,), equal ones allowed.

    Raises:
        ValueError: There is none, or a rate is known, and not larger than 0.
    """
    along = jnp.asarray(rates)
    along = along.astype(jnp.result_type(float, along))
    if along.ndim != 1 or along.shape[0] == 0:
        raise ValueError(f"rates have the shape {along.shape}; needed is (m,), as in hypoexponential([1.0, 2.0])")
    check_positive("rate", along, "hypoexponential([1.0, 2.0])")
    return Continuous(_first(along.shape[0], along.dtype), jnp.diag(along[:-1], 1) - jnp.diag(along))


def exponential(rate: Any) -> Continuous:
    """Return the exponential time: f(t) = rate exp(-rate t)."""
    check_positive("rate", rate, "exponential(2.0)")
    return hypoexponential(jnp.reshape(jnp.asarray(rate), 1))


def erlang(shape: int, rate: Any) -> Continuous:
    """Return the sum of `shape` exponential times of one rate: the gamma distribution with a whole shape."""
    if shape < 1:
        raise ValueError(f"shape={shape}: an Erlang time sums 1 exponential time or more, as in erlang(3, 2.0)")
    check_positive("rate", rate, "erlang(3, 2.0)")
    return hypoexponential(jnp.broadcast_to(jnp.asarray(rate), (shape,)))


def geometric(probability: Any) -> Discrete:
    """Return the number of trials until the first success: (1 - p)^(k-1) p."""
    check_positive("probability", probability, "geometric(0.5)", most=1)
    p = jnp.asarray(probability, jnp.result_type(float, probability))
    return Discrete(jnp.ones(1, p.dtype), jnp.reshape(1 - p, (1, 1)), jnp.reshape(p, (1,)))


def _lineages(samples: int) -> Array:
    if samples < 2:
        raise ValueError(f"samples={samples}: a genealogy joins 2 samples or more, as in coalescent_height(10)")
    return jnp.arange(samples, 1, -1, dtype=jnp.result_type(float))


def coalescent_height(samples: int, rate: Any = 1.0) -> Continuous:
    """Return the time to the most recent common ancestor (Kingman 1982).

    With k lineages, the next two join at the rate k (k-1) / 2.

    Args:
        samples: Number of samples n, 2 or more.
        rate: Rate at which a pair joins; 1 measures time in units of the population size.
    """
    k = _lineages(samples)
    check_positive("rate", rate, "coalescent_height(10, 2.0)")
    return hypoexponential(rate * k * (k - 1) / 2)


def coalescent_length(samples: int, rate: Any = 1.0) -> Continuous:
    """Return the total length of a genealogy: each lineage adds its time. P(L <= t) = (1 - exp(-t/2))^(n-1)."""
    k = _lineages(samples)
    check_positive("rate", rate, "coalescent_length(10, 2.0)")
    return hypoexponential(rate * (k - 1) / 2)


def segregating_sites(samples: int, theta: Any) -> Discrete:
    """Return the number of mutations on the genealogy, plus 1: they come at the rate theta / 2 along its branches."""
    check_positive("theta", theta, "segregating_sites(10, 2.0)")
    return coalescent_length(samples).poisson_count(jnp.asarray(theta) / 2)
