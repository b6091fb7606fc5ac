"""Phase-type distributions: how long a Markov chain takes until it is absorbed.

    >>> import jax, jax.numpy as jnp
    >>> from srunbook import phase_type
    >>> two = phase_type.erlang(2, 3.0)
    >>> round(float(two.mean()), 4), round(float(two.cdf(1.0)), 4)
    (0.6667, 0.8009)
    >>> score = jax.grad(lambda rate: phase_type.erlang(2, rate).log_prob(jnp.array([0.5, 1.5])).sum())
    >>> round(float(score(3.0)), 4)  # 2 N / rate - sum t
    -0.6667

All of it works under `jax.jit`, `jax.vmap` and `jax.grad` (reverse mode), in float32 and in float64. `log_prob` of an
array shares one computation between all its elements.

- `Continuous` and `Discrete` are the distributions, made from initial probabilities and a matrix.
- `exponential`, `erlang`, `hypoexponential`: one path of states.
- `coalescent_height`, `coalescent_length`, `segregating_sites`: the genealogy of a sample (Kingman 1982).
- `Continuous.rewarded` counts time in each state at its own rate; `Continuous.poisson_count` counts events meanwhile.
"""

from __future__ import annotations

from srunbook.phase_type._distributions import Continuous, Discrete
from srunbook.phase_type._models import (
    coalescent_height,
    coalescent_length,
    erlang,
    exponential,
    geometric,
    hypoexponential,
    segregating_sites,
)
from srunbook.phase_type._series import MOST_TERMS

__all__ = [
    "MOST_TERMS",
    "Continuous",
    "Discrete",
    "coalescent_height",
    "coalescent_length",
    "erlang",
    "exponential",
    "geometric",
    "hypoexponential",
    "segregating_sites",
]
