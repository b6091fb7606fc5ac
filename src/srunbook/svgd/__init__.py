"""Stein variational gradient descent over all devices of all processes.

    >>> import jax, jax.numpy as jnp
    >>> from srunbook.svgd import SVGD
    >>> sampler = SVGD(lambda x: -0.5 * jnp.sum((x - 3.0) ** 2), dim=1)
    >>> result = sampler.run(jax.random.key(0), n_particles=50, n_steps=300)
    >>> result.particles.shape, round(float(result.particles.mean()), 1)
    ((50, 1), 3.0)

- `SVGD` moves particles until they represent a distribution, and returns an `SVGDResult`.
- `kernel_stein_discrepancy` measures how well they represent it.

`srunbook.phase_type` has models to use with it.
"""

from __future__ import annotations

from srunbook.svgd.checkpoints import saved_steps
from srunbook.svgd.kernel import kernel_stein_discrepancy
from srunbook.svgd.results import (
    DimensionWarning,
    Direction,
    Holding,
    ProcessTiming,
    SVGDError,
    SVGDResult,
)
from srunbook.svgd.sampler import SVGD

__all__ = [
    "SVGD",
    "DimensionWarning",
    "Direction",
    "Holding",
    "ProcessTiming",
    "SVGDError",
    "SVGDResult",
    "kernel_stein_discrepancy",
    "saved_steps",
]
