"""The same direction in blocks: memory grows with n d.

srunbook simulate --nodes 1 --ntasks-per-node 1 -- python fixed.py
"""

from __future__ import annotations

import resource

import jax
import jax.numpy as jnp

from srunbook import initialize_distributed
from srunbook.svgd import SVGD

N, D = 2**14, 16  # their table would have 17 GB

initialize_distributed()
sampler = SVGD(lambda x: -0.5 * jnp.sum(x**2), dim=D)
phi = sampler.direction(jax.random.normal(jax.random.key(0), (N, D))).phi
most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(f"direction {phi.shape}: the process held {'less' if most < 2**30 else 'more'} than 1 GiB")
