"""Phase-type distributions in continuous and in discrete time (Bladt and Nielsen 2017)."""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-call"
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from srunbook.phase_type._checks import check_ends, check_positive, check_rates, check_shapes, check_steps
from srunbook.phase_type._series import log_series

HALF = math.log(0.5)

_Chain = TypeVar("_Chain")


def _tree(cls: type[_Chain]) -> type[_Chain]:
    """Register a dataclass as a tree of its arrays; what JAX makes of one, as a gradient, need not be a chain."""
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]

    def unflatten(_: None, arrays: Any) -> _Chain:
        made = object.__new__(cls)
        for name, array in zip(names, arrays, strict=True):
            object.__setattr__(made, name, array)
        return made

    jax.tree_util.register_pytree_node(cls, lambda chain: ([getattr(chain, name) for name in names], None), unflatten)
    return cls


def _compiled(method: Callable[[_Chain, Any], Array]) -> Callable[[_Chain, Any], Array]:
    """Compile a method once for each shape: where it is called outside of jit, JAX compiles each operation else."""
    once = jax.jit(method)

    @functools.wraps(method)
    def call(chain: _Chain, x: Any) -> Array:
        result: Array = once(chain, x)
        return result

    return call


def _points(x: Any, like: Array) -> Array:
    points: Array = jnp.asarray(x).astype(like.dtype)
    return points


def _not_negative(matrix: Array) -> Array:
    """Remove the negative numbers that rounding leaves in a matrix, and keep its gradient."""
    return matrix + lax.stop_gradient(jnp.maximum(-matrix, 0))


def _missing(rows: Array) -> Array:
    """Sum up the rows, to 0 or more.

    A row without any stays without: at 0 its gradient is 0. Otherwise that of a state which never ends would be that
    of ending from there after all, which is beyond any size, and would have to cancel between two rates.
    """
    sums = jnp.sum(rows, axis=1)
    return jnp.where(sums > 0, sums, 0)


def _with_end(initial: Array, steps: Array, ends: Array) -> tuple[Array, Array, Array]:
    """Extend a chain by its end as one more state, which it never leaves.

    Returns:
        Its initial probabilities, shape (m + 1,), those of its steps, shape (m + 1, m + 1), and the indicator of the
        end, shape (m + 1,).
    """
    end = jnp.zeros(len(initial) + 1, steps.dtype).at[-1].set(1)
    return jnp.append(initial, 0), jnp.concatenate([jnp.column_stack([steps, ends]), end[None]]), end


def _log_cdf(ended: Array, log_survival: Array) -> Array:
    """Compute the log of the distribution function: from its own where it is small, and else from that of the rest."""
    late = log_survival < HALF
    return jnp.where(late, jnp.log1p(-jnp.exp(jnp.where(late, log_survival, -1))), ended)


@_tree
@dataclass(frozen=True)
class Continuous:
    """Time until a Markov chain in continuous time is absorbed.

    Args:
        initial: Probabilities of the states at time 0, shape (m,), with sum 1.
        rates: The subintensity matrix T, shape (m, m): rates between states, and on the diagonal minus the rate at
            which each state is left. What is missing to a row sum of 0 is the rate of absorption.

    Times are in units of 1 / rate.

    Raises:
        ValueError: The shapes do not fit together, or, where values are known and not traced, they are no
            probabilities and no rates.
    """

    initial: Array
    rates: Array

    def __post_init__(self) -> None:
        """Refuse what is no chain."""
        check_shapes(self.initial, self.rates, "rates")
        check_rates(self.initial, self.rates)

    def _jumps(self) -> tuple[Array, Array, Array]:
        """Return the fastest rate s, the chain in steps at it, P = I + T / s (m, m), and its ends, shape (m,)."""
        scale = lax.stop_gradient(jnp.max(-jnp.diagonal(self.rates)))
        matrix = jnp.eye(len(self.initial), dtype=self.rates.dtype) + self.rates / scale
        # -scale / scale need not be -1 once it is compiled
        return scale, _not_negative(matrix), _missing(-self.rates) / scale

    def _series(self, t: Any, scale: Array, initial: Array, matrix: Array, ends: Array) -> Array:
        """Compute the log of sum_k Pois(k; scale t) initial P^k ends."""
        times = _points(t, self.rates)
        usable = times >= 0
        mean = scale * jnp.where(usable, times, 0)
        logs = log_series(initial, matrix, ends, mean.reshape(-1), True).reshape(times.shape)
        return jnp.where(usable, logs, jnp.nan)

    @_compiled
    def log_prob(self, t: Any) -> Array:
        """Compute the log density at times t of any shape, by uniformization (Jensen 1953); -inf where t < 0.

        f(t) = s sum_k Pois(k; s t) initial P^k exit / s, with s the fastest rate, P = I + T / s, exit = -T 1.
        """
        scale, matrix, ends = self._jumps()
        logs = self._series(t, scale, self.initial, matrix, ends)
        return jnp.where(_points(t, self.rates) < 0, -jnp.inf, logs + jnp.log(scale))

    def prob(self, t: Any) -> Array:
        """Compute the density at times t of any shape."""
        return jnp.exp(self.log_prob(t))

    @_compiled
    def log_survival(self, t: Any) -> Array:
        """Compute the log of the probability that absorption comes after t: initial exp(T t) 1."""
        scale, matrix, _ = self._jumps()
        logs = self._series(t, scale, self.initial, matrix, jnp.ones_like(self.initial))
        return jnp.where(_points(t, self.rates) < 0, 0, jnp.minimum(logs, 0))

    @_compiled
    def log_cdf(self, t: Any) -> Array:
        """Compute the log of the probability that absorption comes by t, with all its digits where that is small.

        There it is the log of sum_k Pois(k; s t) e_k with e_k the probability that the chain has ended after k of its
        jumps: no term is negative, and none cancels another. -inf where t <= 0.
        """
        scale, matrix, ends = self._jumps()
        ended = self._series(t, scale, *_with_end(self.initial, matrix, ends))
        return jnp.where(_points(t, self.rates) < 0, -jnp.inf, _log_cdf(ended, self.log_survival(t)))

    def cdf(self, t: Any) -> Array:
        """Compute the probability that absorption comes by t."""
        return jnp.exp(self.log_cdf(t))

    def moment(self, order: int) -> Array:
        """Compute E X^order = order! initial (-T)^-order 1."""
        column = jnp.ones_like(self.initial)
        for _ in range(order):
            column = jnp.linalg.solve(-self.rates, column)
        moment: Array = math.factorial(order) * jnp.dot(self.initial, column)
        return moment

    def mean(self) -> Array:
        """Compute the expected time."""
        return self.moment(1)

    def variance(self) -> Array:
        """Compute the variance of the time."""
        return self.moment(2) - self.moment(1) ** 2

    def sample(self, key: Array, shape: tuple[int, ...] = ()) -> Array:
        """Draw times of independent chains, followed jump by jump, as an array of the given shape."""
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
        """Return the total reward until absorption, where each state earns its reward per unit of time.

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
        """Count the events of a Poisson process until absorption, plus 1 (Hobolth, Siri-Jegousse and Bladt 2019).

        With T the rates and t = -T 1 those of absorption, the next event comes before it, from state i in state j, with
        the probability P_ij, P = r (r I - T)^-1, and after it with the probability (r I - T)^-1 t, which is not taken
        from the rows of P: where it is small, 1 - P 1 has no digits.

        Args:
            rate: Events per unit of time.

        Raises:
            ValueError: The rate is known, and not larger than 0.
        """
        check_positive("rate", rate, "poisson_count(1.5)")
        m = len(self.initial)
        steps = jnp.linalg.inv(jnp.eye(m, dtype=self.rates.dtype) - self.rates / rate)
        return Discrete(self.initial, steps, steps @ (_missing(-self.rates) / rate))


@_tree
@dataclass(frozen=True)
class Discrete:
    """Number of steps until a Markov chain in discrete time is absorbed: 1 or more.

    Args:
        initial: Probabilities of the states at first, shape (m,), with sum 1.
        steps: Probabilities of going from state to state, shape (m, m).
        ends: Probabilities of absorption from each state, shape (m,). Otherwise they are what the rows of `steps` lack
            to 1, and where one is as small as rounding, it has no digits.

    Raises:
        ValueError: The shapes do not fit together, or, where values are known and not traced, they are no
            probabilities and no rates.
    """

    initial: Array
    steps: Array
    ends: Array | None = None

    def __post_init__(self) -> None:
        """Refuse what is no chain."""
        check_shapes(self.initial, self.steps, "steps")
        check_steps(self.initial, self.steps)
        if self.ends is not None:
            check_ends(self.steps, self.ends)

    def _ends(self) -> Array:
        if self.ends is not None:
            return _not_negative(self.ends)
        return _missing(jnp.eye(len(self.initial), dtype=self.steps.dtype) - self.steps)

    def _series(self, k: Any, initial: Array, matrix: Array, ends: Array) -> Array:
        """Compute the log of initial P^k ends."""
        terms = _points(k, self.steps)
        return log_series(initial, matrix, ends, terms.reshape(-1), False).reshape(terms.shape)

    @_compiled
    def log_prob(self, k: Any) -> Array:
        """Compute the log probability of exactly k steps, initial P^(k-1) (1 - P 1), for numbers k of any shape."""
        number = _points(k, self.steps)
        real = (number >= 1) & (number == jnp.floor(number))
        at = jnp.where(real, number - 1, 0)
        logs = self._series(at, self.initial, _not_negative(self.steps), self._ends())
        return jnp.where(real, logs, -jnp.inf)

    def prob(self, k: Any) -> Array:
        """Compute the probability of exactly k steps."""
        return jnp.exp(self.log_prob(k))

    @_compiled
    def log_survival(self, k: Any) -> Array:
        """Compute the log of the probability of more than k steps: initial P^k 1."""
        number = jnp.floor(_points(k, self.steps))
        at = jnp.maximum(number, 0)
        logs = self._series(at, self.initial, _not_negative(self.steps), jnp.ones_like(self.initial))
        return jnp.where(number < 0, 0, jnp.minimum(logs, 0))

    @_compiled
    def log_cdf(self, k: Any) -> Array:
        """Compute the log of the probability of at most k steps, exact where it is small; -inf where k < 1."""
        number = jnp.floor(_points(k, self.steps))
        with_end = _with_end(self.initial, _not_negative(self.steps), self._ends())
        ended = self._series(jnp.maximum(number, 0), *with_end)
        return jnp.where(number < 1, -jnp.inf, _log_cdf(ended, self.log_survival(k)))

    def cdf(self, k: Any) -> Array:
        """Compute the probability of at most k steps."""
        return jnp.exp(self.log_cdf(k))

    def factorial_moment(self, order: int) -> Array:
        """Compute E X (X-1) ... (X-order+1) = order! initial P^(order-1) (I - P)^-order 1."""
        eye = jnp.eye(len(self.initial), dtype=self.steps.dtype)
        column = jnp.ones_like(self.initial)
        for _ in range(order):
            column = jnp.linalg.solve(eye - self.steps, column)
        for _ in range(order - 1):
            column = self.steps @ column
        moment: Array = math.factorial(order) * jnp.dot(self.initial, column)
        return moment

    def mean(self) -> Array:
        """Compute the expected number of steps."""
        return self.factorial_moment(1)

    def variance(self) -> Array:
        """Compute the variance of the number of steps."""
        mean = self.mean()
        variance: Array = self.factorial_moment(2) + mean - mean**2
        return variance

    def sample(self, key: Array, shape: tuple[int, ...] = ()) -> Array:
        """Draw numbers of steps of independent chains, as an int32 array of the given shape."""
        ends = self._ends()
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
