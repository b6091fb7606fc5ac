"""The series behind all densities and tails: log sum_k w_k(x) a P^k b, with its gradients.

Two kinds of weights are needed: Poisson probabilities with mean x (uniformization, Jensen 1953), and the single term
k = x of a chain in discrete time. How many terms are needed depends on x, which may be traced, so the loop ends by
itself; its gradients are computed by a second loop of the same length and not by differentiating the first.
"""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-call"
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

MOST_TERMS = 100_000
"""Where more terms are needed the result is NaN: then a rate times a time is about this large."""

SMALL = 5
"""Matrices of so many states or fewer are multiplied without a call of a matrix product for each element of a batch."""

LARGEST_EXPONENT = 80.0
"""Factors of the gradient are cut off here; float32 ends at 88."""


class _Path(NamedTuple):
    """The row vector a P^k, of which the size is kept apart so that it never underflows.

    Args:
        row: a P^k / exp(size), with sum 1.
        size: Logarithm of its sum.
    """

    row: Array
    size: Array

    @classmethod
    def normal(cls, row: Array, size: Array) -> _Path:
        """Make a path with a row of sum 1."""
        total = jnp.sum(row)
        ended = total <= 0
        return cls(row / jnp.where(ended, 1, total), size + jnp.log(jnp.where(ended, 1, total)))

    def after(self, matrix: Array) -> _Path:
        """Go one step further."""
        return _Path.normal(_product(self.row, matrix), self.size)


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
    """Count the terms that are needed.

    The Poisson tail beyond is less than 1e-15 (1e-9 in float32, which rounds more). It counts from the last state:
    where a chain passes all of its states, no earlier term is more than 0, and the sum may be as small as the next.
    """
    largest = jnp.max(x, initial=0)
    wide, more = (6, 12) if x.dtype == jnp.float32 else (8, 20)
    wanted = jnp.ceil(largest + wide * jnp.sqrt(largest) + more + states) if poisson else largest + 1
    return jnp.where(wanted <= MOST_TERMS, wanted, 0).astype(jnp.int32)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def log_series(a: Array, matrix: Array, b: Array, x: Array, poisson: bool) -> Array:
    """Compute the logarithm of sum_k w_k(x) a P^k b.

    Args:
        a: Row vector, not negative, shape (m,).
        matrix: P, not negative, with row sums of at most 1, shape (m, m).
        b: Column vector, not negative, shape (m,).
        x: Points, shape (points,): means of Poisson distributions, or numbers of terms.
        poisson: Which of the two they are.

    Returns:
        The logarithms, shape (points,); NaN where more than `MOST_TERMS` terms were needed.
    """
    logs: Array = _forward(a, matrix, b, x, poisson)[0]
    return logs


@functools.partial(jax.jit, static_argnums=4)  # called from outside of jit, it is compiled once for each shape
def _forward(a: Array, matrix: Array, b: Array, x: Array, poisson: bool) -> tuple[Array, Any]:
    count = _terms(x, len(a), poisson=poisson)

    def add(k: Array, carry: tuple[_Path, Array, Array]) -> tuple[_Path, Array, Array]:
        path, highest, total = carry
        found = jnp.log(jnp.sum(path.row * b)) + path.size + _log_weights(k, x, poisson=poisson)
        now = jnp.maximum(highest, found)
        share = jnp.exp(jnp.minimum(highest, found) - jnp.where(jnp.isfinite(now), now, 0))  # of the larger
        return path.after(matrix), now, jnp.where(found > highest, total * share + 1, total + share)

    start = _Path.normal(a, jnp.zeros((), a.dtype))
    nothing = jnp.full(x.shape, -jnp.inf, a.dtype)
    _, highest, total = lax.fori_loop(0, count, add, (start, nothing, jnp.zeros(x.shape, a.dtype)))
    result = jnp.where(count > 0, highest + jnp.log(total), jnp.nan)
    return result, (a, matrix, b, x, result)


@functools.partial(jax.jit, static_argnums=0)
def _backward(poisson: bool, saved: Any, given: Array) -> tuple[Array, Array, Array, Array]:
    """Compute the gradients of the logarithms.

    With c_k = sum over points of given w_k / result, row_k = a P^k and col_k = P^k b, they are sum c_k col_k for a,
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
        weight = jnp.sum(given * factors)

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
    of_x = given * jnp.where(known, sums_of_x - 1, 0) if poisson else jnp.zeros_like(x)
    return of_a, of_matrix, of_b, of_x


def _sized(array: Array, size: Array) -> tuple[Array, Array]:
    """Scale an array so that its largest element is 1; return it with the logarithm of its size."""
    largest = jnp.max(array)
    safe = jnp.where(largest > 0, largest, 1)
    return array / safe, size + jnp.log(safe)


log_series.defvjp(_forward, _backward)
