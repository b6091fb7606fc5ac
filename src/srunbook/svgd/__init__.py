"""Stein variational gradient descent over all devices of all processes, and phase-type models to use it on.

    >>> import jax, jax.numpy as jnp
    >>> from srunbook.svgd import SVGD
    >>> sampler = SVGD(lambda x: -0.5 * jnp.sum((x - 3.0) ** 2), dim=1)
    >>> result = sampler.run(jax.random.key(0), n_particles=50, n_steps=300)
    >>> result.particles.shape, round(float(result.particles.mean()), 1)
    ((50, 1), 3.0)

- `SVGD` moves particles until they stand for a distribution; `SVGDResult` is what it returns.
- `kernel_stein_discrepancy` measures how well they stand for it.
- `phase_type` has the distributions of times until absorption, such as the heights of genealogies.
"""

from __future__ import annotations

from srunbook.svgd import phase_type
from srunbook.svgd._ksd import kernel_stein_discrepancy
from srunbook.svgd._result import (
    DimensionWarning,
    Direction,
    Holding,
    PrecisionWarning,
    ProcessTiming,
    SVGDError,
    SVGDResult,
)
from srunbook.svgd._sampler import SVGD

__all__ = [
    "SVGD",
    "DimensionWarning",
    "Direction",
    "Holding",
    "PrecisionWarning",
    "ProcessTiming",
    "SVGDError",
    "SVGDResult",
    "kernel_stein_discrepancy",
    "phase_type",
]
