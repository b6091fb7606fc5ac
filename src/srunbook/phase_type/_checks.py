"""What is no phase-type distribution is refused, wherever values are known; traced ones cannot be looked at."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

ROUNDING = 1e-3
"""By how much probabilities may miss 1, and rates 0, as a share of the largest: they may be computed in float32."""


def _known(*values: Any) -> bool:
    return not any(
        isinstance(value, jax.core.Tracer) or not getattr(value, "is_fully_addressable", True) for value in values
    )


def check_shapes(initial: Any, matrix: Any, name: str) -> None:
    """Refuse shapes that do not fit together."""
    if jnp.ndim(matrix) != 2 or jnp.shape(matrix) != jnp.shape(initial) * 2:
        raise ValueError(
            f"initial has the shape {jnp.shape(initial)} and {name} {jnp.shape(matrix)}; needed are (m,) and (m, m)"
        )


def _check_initial(initial: np.ndarray[Any, Any]) -> None:
    wrong = np.flatnonzero(~(initial >= -ROUNDING))
    if len(wrong) or not abs(initial.sum() - 1) <= ROUNDING:
        found = f"has {initial[wrong[0]]:.6g} at {wrong[0]}" if len(wrong) else f"sums to {initial.sum():.6g}"
        raise ValueError(f"initial {found}; it has probabilities of 0 or more with sum 1, as in [1.0, 0.0]")


def check_rates(initial: Any, rates: Any) -> None:
    """Refuse what are no initial probabilities, and what is no subintensity matrix.

    Raises:
        ValueError: A probability or a rate between states is negative, probabilities do not sum to 1, a state is never
            left, or a row sums to more than 0.
    """
    if not _known(initial, rates):
        return
    _check_initial(np.asarray(initial, float))
    matrix = np.asarray(rates, float)
    example = "as in [[-3.0, 2.0], [0.0, -1.0]]"
    leaving = -np.diagonal(matrix)
    if not ((leaving > 0) & np.isfinite(leaving)).all():
        state = int(np.flatnonzero(~((leaving > 0) & np.isfinite(leaving)))[0])
        raise ValueError(
            f"rates has {matrix[state, state]:.6g} at ({state}, {state}); on the diagonal it has minus the "
            f"rate at which each state is left, {example}"
        )
    slack = ROUNDING * leaving.max()
    between = np.where(np.eye(len(matrix), dtype=bool), 0, matrix)
    _check_entries(between, slack, "rates", f"rates between states are 0 or more, {example}")
    _check_sums(matrix, slack, "rates", f"each row sums to 0 or less, {example}")


def check_steps(initial: Any, steps: Any) -> None:
    """Refuse what are no initial probabilities, and what are no probabilities of steps.

    Raises:
        ValueError: A probability is negative, or some do not sum to 1 or to less.
    """
    if not _known(initial, steps):
        return
    _check_initial(np.asarray(initial, float))
    matrix = np.asarray(steps, float)
    example = "as in [[0.5, 0.3], [0.0, 0.9]]"
    _check_entries(matrix, ROUNDING, "steps", f"probabilities are 0 or more, {example}")
    _check_sums(matrix, 1 + ROUNDING, "steps", f"each row sums to 1 or less, {example}")


def check_ends(steps: Any, ends: Any) -> None:
    """Refuse probabilities of absorption that do not fit those of the steps.

    Raises:
        ValueError: There is not one for each state, one is negative, or one does not sum to 1 with its row.
    """
    if jnp.shape(ends) != jnp.shape(steps)[:1]:
        raise ValueError(f"ends has the shape {jnp.shape(ends)}; needed is {jnp.shape(steps)[:1]}, one for each state")
    if not _known(steps, ends):
        return
    probabilities = np.asarray(ends, float)
    sums = probabilities + np.asarray(steps, float).sum(axis=1)
    wrong = np.flatnonzero(~(probabilities >= -ROUNDING) | ~(abs(sums - 1) <= ROUNDING))
    if len(wrong):
        state = int(wrong[0])
        raise ValueError(
            f"ends has {probabilities[state]:.6g} at {state}, and its row of steps sums to "
            f"{sums[state] - probabilities[state]:.6g}; they are 0 or more and sum to 1, as in "
            "steps=[[0.5, 0.3], [0.0, 0.9]], ends=[0.2, 0.1]"
        )


def check_positive(name: str, value: Any, example: str, *, most: float = np.inf) -> None:
    """Refuse numbers that are not larger than 0, not finite, or larger than the most."""
    if not _known(value):
        return
    numbers = np.asarray(value, float)
    right = (numbers > 0) & (numbers <= most) & np.isfinite(numbers)
    if not right.all():
        allowed = "larger than 0" if most == np.inf else f"larger than 0 and {most:g} at most"
        raise ValueError(f"{name}={numbers[~right].flat[0]:.6g}: it is {allowed}, as in {example}")


def _check_entries(matrix: np.ndarray[Any, Any], slack: float, name: str, needed: str) -> None:
    wrong = np.argwhere(~(matrix >= -slack) | ~np.isfinite(matrix))
    if len(wrong):
        row, column = map(int, wrong[0])
        raise ValueError(f"{name} has {matrix[row, column]:.6g} at ({row}, {column}); {needed}")


def _check_sums(matrix: np.ndarray[Any, Any], most: float, name: str, needed: str) -> None:
    sums = matrix.sum(axis=1)
    if not (sums <= most).all():
        row = int(np.flatnonzero(~(sums <= most))[0])
        raise ValueError(f"row {row} of {name} sums to {sums[row]:.6g}; {needed}")
