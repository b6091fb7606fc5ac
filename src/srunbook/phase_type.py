"""Phase-type distributions: how long a Markov chain takes until it is absorbed (Bladt and Nielsen 2017).

    >>> import jax, jax.numpy as jnp
    >>> from srunbook import phase_type
    >>> two = phase_type.erlang(2, 3.0)
    >>> round(float(two.mean()), 4), round(float(two.prob(1.0)), 4)
    (0.6667, 0.4481)
    >>> score = jax.grad(lambda rate: phase_type.erlang(2, rate).log_prob(jnp.array([0.5, 1.5])).sum())
    >>> round(float(score(3.0)), 4)  # 2 N / rate - sum t
    -0.6667

Everything works under `jax.jit`, `jax.vmap` and `jax.grad` (reverse mode), in float32 and in float64. For an array,
`log_prob` shares one computation among all elements.

- `Continuous` and `Discrete` are the distributions, made from initial probabilities and a matrix.
- `exponential`, `erlang` and `hypoexponential` have one path of states.
- `coalescent_height`, `coalescent_length` and `segregating_sites` describe a sample's genealogy (Kingman 1982).
- `Continuous.poisson_count` counts events until absorption.
"""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-call"
import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

__all__ = [
    "MOST_TERMS",
    "Continuous",
    "Discrete",
    "coalescent_height",
    "coalescent_length",
    "erlang",
    "exponential",
    "hypoexponential",
    "segregating_sites",
]

MOST_TERMS = 100_000
"""If more terms are needed, because a rate times a time is about this large, the result is NaN."""

ROUNDING = 1e-3
"""By how much probabilities may miss 1, and rates 0, as a share of the largest: they may be computed in float32."""

SMALL = 5
"""Matrices of so many states or fewer are multiplied without a call of a matrix product for each element of a batch."""

LARGEST_EXPONENT = 80.0
"""Factors of the gradient are cut off here; float32 ends at 88."""

_Chain = TypeVar("_Chain")


def _tree(cls: type[_Chain]) -> type[_Chain]:
    """Register a dataclass as a tree of its arrays; a tree of gradients is not checked, as it need not be a chain."""
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]

    def unflatten(_: None, arrays: Any) -> _Chain:
        tree = object.__new__(cls)
        for name, array in zip(names, arrays, strict=True):
            object.__setattr__(tree, name, array)
        return tree

    jax.tree_util.register_pytree_node(cls, lambda chain: ([getattr(chain, name) for name in names], None), unflatten)
    return cls


def _compiled(method: Callable[[_Chain, Any], Array]) -> Callable[[_Chain, Any], Array]:
    """Compile a method once for each shape: outside of jit, JAX would compile each operation."""
    once = jax.jit(method)
    return functools.wraps(method)(lambda chain, x: once(chain, x))


@_tree
@dataclass(frozen=True)
class Continuous:
    """Time until a Markov chain in continuous time is absorbed.

    Args:
        initial: Probabilities of the states at time 0, shape (m,), with sum 1.
        rates: The subintensity matrix T, shape (m, m): rates between states, and on the diagonal minus the rate at
            which each state is left. The rate of absorption from a state is minus its row sum.

    Times are in units of 1 / rate.

    Raises:
        ValueError: The shapes do not match, or values that are not traced are not probabilities or rates.
    """

    initial: Array
    rates: Array

    def __post_init__(self) -> None:
        """Reject what is no chain."""
        _check_chain(self.initial, self.rates, "rates such as [[-3.0, 2.0], [0.0, -1.0]], whose rows sum to 0 or less")

    @_compiled
    def log_prob(self, t: Any) -> Array:
        """Compute the log density at times t of any shape, by uniformization (Jensen 1953); -inf if t < 0.

        f(t) = s sum_k Pois(k; s t) initial P^k exit / s, with s the fastest rate, P = I + T / s, exit = -T 1.
        """
        t = jnp.asarray(t).astype(self.rates.dtype)
        scale, usable = lax.stop_gradient(jnp.max(-jnp.diagonal(self.rates))), t >= 0
        matrix = _not_negative(jnp.eye(len(self.initial), dtype=self.rates.dtype) + self.rates / scale)
        means = (scale * jnp.where(usable, t, 0)).reshape(-1)
        logs = _log_series(self.initial, matrix, _missing(-self.rates) / scale, means, True).reshape(t.shape)
        return jnp.where(usable, logs + jnp.log(scale), jnp.where(t < 0, -jnp.inf, jnp.nan))

    def prob(self, t: Any) -> Array:
        """Compute the density at times t of any shape."""
        return jnp.exp(self.log_prob(t))

    def mean(self) -> Array:
        """Compute the expected time, initial (-T)^-1 1."""
        return jnp.dot(self.initial, jnp.linalg.solve(-self.rates, jnp.ones_like(self.initial)))

    def poisson_count(self, rate: Any) -> Discrete:
        """Count the events of a Poisson process until absorption, plus 1 (Hobolth, Siri-Jegousse and Bladt 2019).

        Let T be the rates and t = -T 1 the rates of absorption. With P = r (r I - T)^-1, the next event from state i
        comes before absorption, in state j, with the probability P_ij. It comes after absorption with the probability
        (r I - T)^-1 t, which is not computed from the rows of P: if it is small, 1 - P 1 has no correct digits.

        Args:
            rate: Events per unit of time, larger than 0.
        """
        steps = jnp.linalg.inv(jnp.eye(len(self.initial), dtype=self.rates.dtype) - self.rates / rate)
        return Discrete(self.initial, steps, steps @ (_missing(-self.rates) / rate))


@_tree
@dataclass(frozen=True)
class Discrete:
    """Number of steps until a Markov chain in discrete time is absorbed: 1 or more.

    Args:
        initial: Initial probabilities of the states, shape (m,), with sum 1.
        steps: Probabilities of going from state to state, shape (m, m).
        ends: Probabilities of absorption from each state, shape (m,). By default, what each row of `steps` lacks to a
            sum of 1; a probability as small as the rounding then has no correct digits.

    Raises:
        ValueError: The shapes do not match, or values that are not traced are not probabilities.
    """

    initial: Array
    steps: Array
    ends: Array | None = None

    def __post_init__(self) -> None:
        """Reject what is no chain."""
        changes = self.steps - jnp.eye(len(self.steps))
        _check_chain(self.initial, changes, "steps such as [[0.5, 0.3], [0.0, 0.9]], whose rows sum to 1 or less")
        if self.ends is not None and jnp.shape(self.ends) != jnp.shape(self.initial):
            raise ValueError(f"ends has the shape {jnp.shape(self.ends)}; needed is {jnp.shape(self.initial)}")

    @_compiled
    def log_prob(self, k: Any) -> Array:
        """Compute the log probability of exactly k steps, initial P^(k-1) (1 - P 1), for numbers k of any shape."""
        k, eye = jnp.asarray(k).astype(self.steps.dtype), jnp.eye(len(self.initial), dtype=self.steps.dtype)
        ends = _missing(eye - self.steps) if self.ends is None else _not_negative(self.ends)
        possible = (k >= 1) & (k == jnp.floor(k))
        terms = jnp.where(possible, k - 1, 0).reshape(-1)
        logs = _log_series(self.initial, _not_negative(self.steps), ends, terms, False).reshape(k.shape)
        return jnp.where(possible, logs, -jnp.inf)

    def prob(self, k: Any) -> Array:
        """Compute the probability of exactly k steps."""
        return jnp.exp(self.log_prob(k))

    def mean(self) -> Array:
        """Compute the expected number of steps, initial (I - P)^-1 1."""
        ones = jnp.ones_like(self.initial)
        return jnp.dot(self.initial, jnp.linalg.solve(jnp.diag(ones) - self.steps, ones))


def hypoexponential(rates: Any) -> Continuous:
    """Return the sum of independent exponential times with these rates, shape (m,): a chain of states in a row."""
    along = jnp.asarray(rates)
    along = along.astype(jnp.result_type(float, along))
    if along.ndim != 1 or along.shape[0] == 0:
        raise ValueError(f"rates have the shape {along.shape}; needed is (m,), as in hypoexponential([1.0, 2.0])")
    return Continuous(jnp.zeros_like(along).at[0].set(1), jnp.diag(along[:-1], 1) - jnp.diag(along))


def exponential(rate: Any) -> Continuous:
    """Return the exponential time, with the density f(t) = rate exp(-rate t)."""
    return hypoexponential(jnp.reshape(jnp.asarray(rate), 1))


def erlang(shape: int, rate: Any) -> Continuous:
    """Return the sum of `shape` exponential times with one rate: the gamma distribution with an integer shape."""
    return hypoexponential(jnp.broadcast_to(jnp.asarray(rate), (shape,)))


def coalescent_height(samples: int, rate: Any = 1.0) -> Continuous:
    """Return the time to the most recent common ancestor (Kingman 1982).

    With k lineages, the next two join at the rate k (k-1) / 2.

    Args:
        samples: Number of samples n, 2 or more.
        rate: Rate at which a pair joins; 1 measures time in units of the population size.
    """
    k = _lineages(samples)
    return hypoexponential(rate * k * (k - 1) / 2)


def coalescent_length(samples: int, rate: Any = 1.0) -> Continuous:
    """Return the total length of a genealogy: each lineage adds its time. P(L <= t) = (1 - exp(-t/2))^(n-1)."""
    k = _lineages(samples)
    return hypoexponential(rate * (k - 1) / 2)


def segregating_sites(samples: int, theta: Any) -> Discrete:
    """Return the number of mutations on the genealogy, plus 1; mutations have the rate theta / 2 along its branches."""
    return coalescent_length(samples).poisson_count(jnp.asarray(theta) / 2)


def _lineages(samples: int) -> Array:
    return jnp.arange(samples, 1, -1, dtype=jnp.result_type(float))


def _known(value: Any) -> bool:
    """Return whether values can be looked at: traced ones, and those on other processes, cannot."""
    return not isinstance(value, jax.core.Tracer) and bool(getattr(value, "is_fully_addressable", True))


def _check_chain(initial: Any, rates: Any, needed: str) -> None:
    """Raise ValueError unless shapes fit and, as far as they can be looked at, values are probabilities and rates."""
    if jnp.ndim(rates) != 2 or jnp.shape(rates) != jnp.shape(initial) * 2:
        raise ValueError(f"the shapes are {jnp.shape(initial)} and {jnp.shape(rates)}; needed are (m,) and (m, m)")
    if not (_known(initial) and _known(rates)):
        return
    start, entries = np.asarray(initial, float), np.asarray(rates, float)
    diagonal = np.diagonal(entries)
    slack = ROUNDING * abs(diagonal).max()
    right = (
        slack > 0
        and (diagonal <= 0).all()
        and (entries - np.diag(diagonal) >= -slack).all()
        and (entries.sum(1) <= slack).all()
    )
    if not (right and (start >= -ROUNDING).all() and abs(start.sum() - 1) <= ROUNDING):
        raise ValueError(f"this is no chain: needed are probabilities with sum 1, as in [1.0, 0.0], and {needed}")


def _not_negative(matrix: Array) -> Array:
    """Remove the negative numbers that rounding leaves in a matrix, and keep its gradient."""
    return matrix + lax.stop_gradient(jnp.maximum(-matrix, 0))


def _missing(rows: Array) -> Array:
    """Sum up the rows, to 0 or more.

    At a sum of 0 the gradient is 0. Otherwise that of a state which never ends would be that of ending from there after
    all, which is beyond any size, and would have to cancel between two rates.
    """
    sums = jnp.sum(rows, axis=1)
    return jnp.where(sums > 0, sums, 0)


# The series behind all densities and tails: log sum_k w_k(x) a P^k b. The weights are Poisson probabilities with mean x
# (uniformization), or the single term k = x of a chain in discrete time. How many terms are needed depends on x, which
# may be traced, so the loop ends by itself; its gradients come from a second loop of the same length.


class _Path(NamedTuple):
    """The row vector a P^k as a row of sum 1 and the logarithm of its sum, so that it never underflows."""

    row: Array
    size: Array

    @classmethod
    def normal(cls, row: Array, size: Array) -> _Path:
        """Make a path with a row of sum 1."""
        total = jnp.sum(row)
        total = jnp.where(total <= 0, 1, total)
        return cls(row / total, size + jnp.log(total))


def _sized(array: Array, size: Array) -> tuple[Array, Array]:
    """Scale an array so that its largest element is 1; return it with the logarithm of its size."""
    largest = jnp.max(array)
    safe = jnp.where(largest > 0, largest, 1)
    return array / safe, size + jnp.log(safe)


def _product(left: Array, right: Array) -> Array:
    """Multiply matrices. Small products are sums of products, which under vmap are faster on a CPU."""
    if len(right) > SMALL:
        return jnp.matmul(left, right, precision=lax.Precision.HIGHEST)
    columns = right[:, None] if right.ndim == 1 else right
    result = jnp.sum(left[..., None] * columns, axis=-2)
    return result[..., 0] if right.ndim == 1 else result


def _log_weights(k: Array, x: Array, *, poisson: bool) -> Array:
    """Compute the logarithms of the weights of term k at each point of x."""
    if not poisson:
        return jnp.where(k == x, 0.0, -jnp.inf).astype(x.dtype)
    real = k.astype(x.dtype)
    positive = jnp.where(x > 0, x, 1)
    # Loader (2000): far fewer digits are lost than in k log x - x - log k!
    away = (real - positive) / positive
    deviance = positive * ((1 + away) * jnp.log1p(away) - away)
    later = -deviance - _stirling_error(real) - 0.5 * jnp.log(2 * jnp.pi * jnp.maximum(real, 1))
    return jnp.where(x > 0, jnp.where(k == 0, -positive, later), jnp.where(k == 0, 0.0, -jnp.inf))


def _stirling_error(k: Array) -> Array:
    """Compute log k! - log(sqrt(2 pi k) (k / e)^k)."""
    safe = jnp.maximum(k, 1)
    inverse = 1 / safe
    square = inverse * inverse
    series = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680)))
    small = lax.lgamma(safe + 1) - 0.5 * jnp.log(2 * jnp.pi * safe) - safe * jnp.log(safe) + safe
    return jnp.where(safe < 16, small, series)


def _terms(x: Array, states: int, *, poisson: bool) -> Array:
    """Count the terms that are needed; 0 if they are too many.

    The Poisson tail beyond is less than 1e-15 (1e-9 in float32, which rounds more). It counts from the last state: in a
    chain that passes all of its states, no earlier term is more than 0, and the sum may be as small as the next.
    """
    largest = jnp.max(x, initial=0)
    wide, more = (6, 12) if x.dtype == jnp.float32 else (8, 20)
    wanted = jnp.ceil(largest + wide * jnp.sqrt(largest) + more + states) if poisson else largest + 1
    return jnp.where(wanted <= MOST_TERMS, wanted, 0).astype(jnp.int32)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _log_series(a: Array, matrix: Array, b: Array, x: Array, poisson: bool) -> Array:
    """Compute log sum_k w_k(x) a P^k b at points x, shape (points,), with a and b (m,) and P (m, m) not negative."""
    logs: Array = _forward(a, matrix, b, x, poisson)[0]
    return logs


@functools.partial(jax.jit, static_argnums=4)  # called from outside of jit, it is compiled once for each shape
def _forward(a: Array, matrix: Array, b: Array, x: Array, poisson: bool) -> tuple[Array, Any]:
    count = _terms(x, len(a), poisson=poisson)

    def add(k: Array, carry: tuple[_Path, Array, Array]) -> tuple[_Path, Array, Array]:
        path, highest, total = carry
        summand = jnp.log(jnp.sum(path.row * b)) + path.size + _log_weights(k, x, poisson=poisson)
        now = jnp.maximum(highest, summand)
        share = jnp.exp(jnp.minimum(highest, summand) - jnp.where(jnp.isfinite(now), now, 0))  # of the larger
        total = jnp.where(summand > highest, total * share + 1, total + share)
        return _Path.normal(_product(path.row, matrix), path.size), now, total

    start = _Path.normal(a, jnp.zeros((), a.dtype))
    nothing = jnp.full(x.shape, -jnp.inf, a.dtype)
    _, highest, total = lax.fori_loop(0, count, add, (start, nothing, jnp.zeros(x.shape, a.dtype)))
    result = jnp.where(count > 0, highest + jnp.log(total), jnp.nan)
    return result, (a, matrix, b, x, result)


@functools.partial(jax.jit, static_argnums=0)
def _backward(poisson: bool, saved: Any, cotangent: Array) -> tuple[Array, Array, Array, Array]:
    """Compute the gradients of the logarithms.

    With c_k = sum over points of cotangent w_k / result, row_k = a P^k and col_k = P^k b, they are sum c_k col_k for a,
    sum c_k row_k for b, and for the matrix sum c_k M_k with M_0 = 0 and M_k+1 = M_k P' + row_k' b'.
    """
    a, matrix, b, x, result = saved
    known = jnp.isfinite(result)
    count = _terms(x, len(a), poisson=poisson)

    def add(k: Array, carry: Any) -> Any:
        path, (column, of_column), (outer, of_outer), sums = carry
        shares = _log_weights(k, x, poisson=poisson) - jnp.where(known, result, jnp.inf)
        peak = jnp.max(shares, initial=-jnp.inf)
        peak = jnp.where(jnp.isfinite(peak), peak, 0)
        factors = jnp.exp(shares - peak)
        weight = jnp.sum(cotangent * factors)

        def scaled(size: Array) -> Array:
            return jnp.exp(jnp.minimum(peak + size, LARGEST_EXPONENT))

        after = _product(path.row, matrix)
        sums = (
            sums[0] + weight * scaled(of_column) * column,
            sums[1] + weight * scaled(of_outer) * outer,
            sums[2] + weight * scaled(path.size) * path.row,
            sums[3] + factors * scaled(path.size) * jnp.sum(after * b),
        )
        # The sum of two matrices whose sizes are kept apart; the larger one sets the size.
        size = jnp.maximum(of_outer, path.size)
        earlier, newest = _product(outer, matrix.T), jnp.outer(path.row, b)
        grown = jnp.exp(of_outer - size) * earlier + jnp.exp(path.size - size) * newest
        return _Path.normal(after, path.size), _sized(_product(matrix, column), of_column), _sized(grown, size), sums

    zero = jnp.zeros((), a.dtype)
    nothing = (jnp.zeros_like(a), jnp.zeros_like(matrix), jnp.zeros_like(b), jnp.zeros_like(x))
    start = (_Path.normal(a, zero), _sized(b, zero), (jnp.zeros_like(matrix), zero - LARGEST_EXPONENT), nothing)
    of_a, of_matrix, of_b, sums_of_x = lax.fori_loop(0, count, add, start)[3]
    # d/dx of a Poisson mixture takes each term to the next
    of_x = cotangent * jnp.where(known, sums_of_x - 1, 0) if poisson else jnp.zeros_like(x)
    return of_a, of_matrix, of_b, of_x


_log_series.defvjp(_forward, _backward)
