"""Nine particles for two devices: the last row of the second device takes no part.

srunbook simulate --nodes 2 --ntasks-per-node 1 -- python fixed.py
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from srunbook import initialize_distributed
from srunbook.svgd import SVGD

dist_info = initialize_distributed()
sampler = SVGD(lambda x: -0.5 * jnp.sum(x**2), dim=1)
result = sampler.run(jax.random.key(0), n_particles=9, n_steps=10)
print(f"{len(result.particles)} particles on {dist_info.global_device_count} devices")
