"""Phase-type distributions in continuous and in discrete time (Bladt and Nielsen 2017)."""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-call"
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from srunbook.svgd.phase_type._series import log_series


def _checked(initial: Any, matrix: Any, name: str) -> None:
    if jnp.ndim(matrix) != 2 or jnp.shape(matrix) != jnp.shape(initial) * 2:
        raise ValueError(
            f"initial has the shape {jnp.shape(initial)} and {name} {jnp.shape(matrix)}; needed are (m,) and (m, m)"
        )


def _points(x: Any, like: Array) -> Array:
    points: Array = jnp.asarray(x).astype(like.dtype)
    return points


def _not_negative(matrix: Array) -> Array:
    """A matrix without the negative numbers that rounding leaves, and with the gradient of what it was."""
    return matrix + lax.stop_gradient(jnp.maximum(-matrix, 0))


def _missing(rows: Array) -> Array:
    """What the rows sum to, 0 or more.

    A row without any stays without: at 0 its gradient is 0. Otherwise that of a state which never ends would be that
    of ending from there after all, which is beyond any size, and would have to cancel between two rates.
    """
    sums = jnp.sum(rows, axis=1)
    return jnp.where(sums > 0, sums, 0)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["initial", "rates"], meta_fields=[])
@dataclass(frozen=True)
class Continuous:
    """Time until a Markov chain in continuous time is absorbed.

    Args:
        initial: Probabilities of the states at time 0, shape (m,), with sum 1.
        rates: The subintensity matrix T, shape (m, m): rates between states, and on the diagonal minus the rate at
            which each state is left. What is missing to a row sum of 0 is the rate of absorption.

    Times are in units of 1 / rate.

    Raises:
        ValueError: The shapes do not fit together.
    """

    initial: Array
    rates: Array

    def __post_init__(self) -> None:
        """Refuses shapes that do not fit."""
        if hasattr(self.rates, "shape"):
            _checked(self.initial, self.rates, "rates")

    def _series(self, t: Any, ends: Array) -> tuple[Array, Array]:
        """Log of sum_k Pois(k; scale t) initial P^k ends, and the scale, for which the fastest rate is enough."""
        scale = lax.stop_gradient(jnp.max(-jnp.diagonal(self.rates)))
        matrix = jnp.eye(len(self.initial), dtype=self.rates.dtype) + self.rates / scale
        matrix = _not_negative(matrix)  # -scale / scale need not be -1 once it is compiled
        times = _points(t, self.rates)
        usable = times >= 0
        mean = scale * jnp.where(usable, times, 0)
        logs = log_series(self.initial, matrix, ends, mean.reshape(-1), True).reshape(times.shape)
        return jnp.where(usable, logs, jnp.nan), scale

    def log_prob(self, t: Any) -> Array:
        """Log density at times t of any shape, by uniformization; -inf where t < 0.

        f(t) = s sum_k Pois(k; s t) initial P^k exit / s, with s the fastest rate, P = I + T / s, exit = -T 1.
        """
        scale = lax.stop_gradient(jnp.max(-jnp.diagonal(self.rates)))
        logs, _ = self._series(t, _missing(-self.rates) / scale)
        return jnp.where(_points(t, self.rates) < 0, -jnp.inf, logs + jnp.log(scale))

    def prob(self, t: Any) -> Array:
        """Density at times t."""
        return jnp.exp(self.log_prob(t))

    def log_survival(self, t: Any) -> Array:
        """Log of the probability that absorption comes after t: initial exp(T t) 1."""
        logs, _ = self._series(t, jnp.ones_like(self.initial))
        return jnp.where(_points(t, self.rates) < 0, 0, jnp.minimum(logs, 0))

    def cdf(self, t: Any) -> Array:
        """Probability that absorption comes by t."""
        return -jnp.expm1(self.log_survival(t))

    def moment(self, order: int) -> Array:
        """E X^order = order! initial (-T)^-order 1."""
        column = jnp.ones_like(self.initial)
        for _ in range(order):
            column = jnp.linalg.solve(-self.rates, column)
        moment: Array = math.factorial(order) * jnp.dot(self.initial, column)
        return moment

    def mean(self) -> Array:
        """Expected time."""
        return self.moment(1)

    def variance(self) -> Array:
        """Variance of the time."""
        return self.moment(2) - self.moment(1) ** 2

    def sample(self, key: Array, shape: tuple[int, ...] = ()) -> Array:
        """Times of independent chains, which are followed jump by jump."""
        leaving = -jnp.diagonal(self.rates)
        exits = _missing(-self.rates)
        off = jnp.where(jnp.eye(len(leaving), dtype=bool), 0, self.rates)
        jumps = jnp.log(jnp.concatenate([off, exits[:, None]], axis=1))

        def one(key: Array) -> Array:
            first, key = jax.random.split(key)

            def stay(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
                state, time, key = carry
                wait, jump, key = jax.random.split(key, 3)
                time = time + jax.random.exponential(wait, dtype=time.dtype) / leaving[state]
                return jax.random.categorical(jump, jumps[state]), time, key

            start = jax.random.categorical(first, jnp.log(self.initial))
            return lax.while_loop(
                lambda carry: carry[0] < len(leaving), stay, (start, jnp.zeros((), self.rates.dtype), key)
            )[1]

        times: Array = jax.vmap(one)(jax.random.split(key, math.prod(shape))).reshape(shape)
        return times

    def rewarded(self, rewards: Sequence[float]) -> Continuous:
        """Total reward until absorption, where each state earns its reward per unit of time.

        States without reward are passed through (Bladt and Nielsen 2017, theorem 3.1.33).

        Args:
            rewards: One number of 0 or more for each state; not traced.

        Raises:
            ValueError: There is not one for each state, one is negative, or a chain may end without any reward, so
                that the total would be 0 with positive probability.
        """
        earned = np.asarray(rewards, float)
        if earned.shape != jnp.shape(self.initial) or not (earned >= 0).all() or not earned.any():
            raise ValueError(
                f"rewards={list(rewards)}: needs {len(self.initial)} numbers of 0 or more, not all 0, as in [2, 1, 1]"
            )
        keep, drop = np.flatnonzero(earned > 0), np.flatnonzero(earned == 0)
        initial, rates = self.initial[keep], self.rates[jnp.ix_(keep, keep)]
        if len(drop):
            inner = -self.rates[jnp.ix_(drop, drop)]
            back = jnp.linalg.solve(inner, self.rates[jnp.ix_(drop, keep)])
            initial = initial + self.initial[drop] @ back
            rates = rates + self.rates[jnp.ix_(keep, drop)] @ back
            lost = 1 - jnp.sum(initial)
            if not isinstance(lost, jax.core.Tracer) and lost > 1e-5:
                raise ValueError(f"rewards={list(rewards)}: with probability {float(lost):.3g} none is earned at all")
        return Continuous(initial, rates / jnp.asarray(earned[keep], rates.dtype)[:, None])

    def poisson_count(self, rate: Any) -> Discrete:
        """Number of events of a Poisson process until absorption, plus 1 (Hobolth, Siri-Jegousse and Bladt 2019).

        Args:
            rate: Events per unit of time.
        """
        m = len(self.initial)
        return Discrete(self.initial, jnp.linalg.inv(jnp.eye(m, dtype=self.rates.dtype) - self.rates / rate))


@functools.partial(jax.tree_util.register_dataclass, data_fields=["initial", "steps"], meta_fields=[])
@dataclass(frozen=True)
class Discrete:
    """Number of steps until a Markov chain in discrete time is absorbed: 1 or more.

    Args:
        initial: Probabilities of the states at first, shape (m,), with sum 1.
        steps: Probabilities of going from state to state, shape (m, m). What is missing to a row sum of 1 is the
            probability of absorption.

    Raises:
        ValueError: The shapes do not fit together.
    """

    initial: Array
    steps: Array

    def __post_init__(self) -> None:
        """Refuses shapes that do not fit."""
        if hasattr(self.steps, "shape"):
            _checked(self.initial, self.steps, "steps")

    def _series(self, k: Any, ends: Array) -> Array:
        terms = _points(k, self.steps)
        return log_series(self.initial, _not_negative(self.steps), ends, terms.reshape(-1), False).reshape(terms.shape)

    def log_prob(self, k: Any) -> Array:
        """Log probability of exactly k steps, initial P^(k-1) (1 - P 1), for whole numbers k of any shape."""
        number = _points(k, self.steps)
        real = (number >= 1) & (number == jnp.floor(number))
        logs = self._series(
            jnp.where(real, number - 1, 0), _missing(jnp.eye(len(self.initial), dtype=self.steps.dtype) - self.steps)
        )
        return jnp.where(real, logs, -jnp.inf)

    def prob(self, k: Any) -> Array:
        """Probability of exactly k steps."""
        return jnp.exp(self.log_prob(k))

    def log_survival(self, k: Any) -> Array:
        """Log of the probability of more than k steps: initial P^k 1."""
        number = jnp.floor(_points(k, self.steps))
        logs = self._series(jnp.maximum(number, 0), jnp.ones_like(self.initial))
        return jnp.where(number < 0, 0, jnp.minimum(logs, 0))

    def cdf(self, k: Any) -> Array:
        """Probability of at most k steps."""
        return -jnp.expm1(self.log_survival(k))

    def factorial_moment(self, order: int) -> Array:
        """E X (X-1) ... (X-order+1) = order! initial P^(order-1) (I - P)^-order 1."""
        eye = jnp.eye(len(self.initial), dtype=self.steps.dtype)
        column = jnp.ones_like(self.initial)
        for _ in range(order):
            column = jnp.linalg.solve(eye - self.steps, column)
        for _ in range(order - 1):
            column = self.steps @ column
        moment: Array = math.factorial(order) * jnp.dot(self.initial, column)
        return moment

    def mean(self) -> Array:
        """Expected number of steps."""
        return self.factorial_moment(1)

    def variance(self) -> Array:
        """Variance of the number of steps."""
        mean = self.mean()
        variance: Array = self.factorial_moment(2) + mean - mean**2
        return variance

    def sample(self, key: Array, shape: tuple[int, ...] = ()) -> Array:
        """Numbers of steps of independent chains, as int32."""
        ends = _missing(jnp.eye(len(self.initial), dtype=self.steps.dtype) - self.steps)
        jumps = jnp.log(jnp.concatenate([self.steps, ends[:, None]], axis=1))

        def one(key: Array) -> Array:
            first, key = jax.random.split(key)

            def step(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
                state, count, key = carry
                jump, key = jax.random.split(key)
                return jax.random.categorical(jump, jumps[state]), count + 1, key

            start = jax.random.categorical(first, jnp.log(self.initial))
            count: Array = lax.while_loop(lambda carry: carry[0] < len(ends), step, (start, jnp.int32(0), key))[1]
            return count

        counts: Array = jax.vmap(one)(jax.random.split(key, math.prod(shape))).reshape(shape)
        return counts
