"""Describe particles whose log density is not a finite number: which, where, and what helps.

A gradient alone does not tell: that of ``2 log x - x`` is finite below 0, where the density is NaN, and that of minus
infinity is 0. SVGD follows gradients and cannot turn a particle back at the end of a support.
"""

from __future__ import annotations

import numpy as np

from srunbook.svgd._result import Floats

UNCONSTRAINED = (
    "Particles cannot be turned back where a density ends. Let them be unconstrained: for a positive parameter its "
    "logarithm u, with log p(exp(u)) + u as the log density; or take smaller steps, as in optimizer=optax.adam(0.01)"
)
OPTIMIZER = "Its place is not finite either. Look at the optimizer: is its step size a number, and small enough?"
BATCH = "; with the rows drawn for that step"


def describe(x: Floats, values: Floats, scores: Floats, *, batches: bool = False) -> str | None:
    """Describe the first particle that has no finite log density or score; return None where all have.

    Args:
        x: The particles, shape (n, d).
        values: Their log densities, shape (n,).
        scores: Gradients of the log density, shape (n, d).
        batches: Whether the densities are those of some rows of the data, drawn for a step.

    >>> text = describe(np.array([[1.0], [-0.5]]), np.array([-1.0, np.nan]), np.array([[1.0], [-5.0]]))
    >>> print(text.partition(". Particles")[0])
    1 of 2 particles have no finite log density or score, first particle 1 at [-0.5]: log density nan, score [-5.]
    """
    placed = np.asarray(np.isfinite(x).all(axis=1))
    wrong = ~(placed & np.isfinite(values) & np.isfinite(scores).all(axis=1))
    if not wrong.any():
        return None
    first = int(np.argmax(wrong))
    found = f"{int(wrong.sum())} of {len(x)} particles have no finite log density or score, first particle {first} at "
    found += f"{_short(x[first])}: log density {values[first]:.4g}, score {_short(scores[first])}"
    return f"{found}{BATCH if batches else ''}. {UNCONSTRAINED if placed[first] else OPTIMIZER}"


def _short(row: Floats) -> str:
    return np.array2string(row, precision=4, threshold=8, edgeitems=3, max_line_width=10_000)
