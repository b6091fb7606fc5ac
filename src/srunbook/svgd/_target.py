"""The distribution that particles are to represent: its log density, and the data that it may need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from srunbook.svgd._arguments import whole


@dataclass(frozen=True)
class Target:
    """A log density, up to a constant: `log_density` and, where there are data, the log likelihood of their rows.

    Args:
        log_density: Of one particle, shape (d,), to a number.
        log_likelihood: Of one particle and some rows of the data, to the sum over these rows.
        batch_size: How many rows are drawn at each step, with replacement; None for all.
        rows: Number of rows of the data.
    """

    log_density: Callable[[Array], Array]
    log_likelihood: Callable[[Array, Any], Array] | None = None
    batch_size: int | None = None
    rows: int = 0

    @classmethod
    def checked(
        cls,
        log_density: Callable[[Array], Array],
        log_likelihood: Callable[[Array, Any], Array] | None,
        data: Any,
        batch_size: int | None,
    ) -> Target:
        """Make a target whose parts fit together.

        Args:
            log_density: As for the class.
            log_likelihood: As for the class.
            data: Arrays with one row for each observation, or a tree of them; None where there is no likelihood.
            batch_size: As for the class.

        Raises:
            ValueError: Only one of data and likelihood is given, the arrays differ in their number of rows, or the
                batch size is not a whole number from 1 to that.
        """
        if (log_likelihood is None) != (data is None):
            given = "data" if log_likelihood is None else "log_likelihood"
            raise ValueError(f"only {given}= is given; log_likelihood= and data= come together")
        lengths = {jnp.shape(leaf)[0] if jnp.ndim(leaf) else 0 for leaf in jax.tree.leaves(data)}
        if data is not None and (len(lengths) != 1 or 0 in lengths):
            raise ValueError(f"the arrays of data have {sorted(lengths)} rows; all have the same number, 1 or more")
        rows = lengths.pop() if lengths else 0
        if batch_size is not None:
            if not rows:
                raise ValueError(
                    f"batch_size={batch_size!r}: there are no rows to draw; give data= and log_likelihood="
                )
            batch_size = whole("batch_size", batch_size, 1, f"batch_size={min(rows, 32)}", rows)
        return cls(log_density, log_likelihood, batch_size, rows)

    def with_all_rows(self) -> Target:
        """Return the same target without batches."""
        return replace(self, batch_size=None)

    def batch(self, data: Any, key: Array, step: Array) -> Any:
        """Draw the rows of a step, with replacement: the same for all particles, wherever they are."""
        if self.batch_size is None:
            return data
        chosen = jax.random.randint(jax.random.fold_in(key, step), (self.batch_size,), 0, self.rows)
        return jax.tree.map(lambda array: jnp.asarray(array)[chosen], data)

    def value(self, particle: Array, batch: Any) -> Array:
        """Compute the log density of one particle, shape (d,), with the likelihood of a batch scaled to all rows.

        Raises:
            ValueError: It is not one number.
        """
        total = jnp.asarray(self.log_density(particle))
        if self.log_likelihood is not None:
            scale = 1.0 if self.batch_size is None else self.rows / self.batch_size
            total = total + scale * self.log_likelihood(particle, batch)
        if total.shape != ():
            raise ValueError(
                f"the log density of one particle has the shape {total.shape}; it is one number, "
                "as in lambda x: -0.5 * jnp.sum(x**2)"
            )
        return total

    def scores(self, x: Array, batch: Any) -> Array:
        """Compute the scores, gradients of the log density at each particle: shape (rows, d) to (rows, d)."""
        gradients: Array = jax.vmap(jax.grad(self.value), (0, None))(x, batch)
        return gradients

    def values(self, x: Array, batch: Any) -> Array:
        """Compute the log density at each particle: shape (rows, d) to (rows,)."""
        densities: Array = jax.vmap(self.value, (0, None))(x, batch)
        return densities

    def values_and_scores(self, x: Array, batch: Any) -> tuple[Array, Array]:
        """Compute log densities, shape (rows,), and scores, shape (rows, d), at each particle, shape (rows, d)."""
        both: tuple[Array, Array] = jax.vmap(jax.value_and_grad(self.value), (0, None))(x, batch)
        return both
