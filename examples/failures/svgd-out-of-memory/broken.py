"""The direction as the formula stands in the paper: a table of all pairs and dimensions.

srunbook simulate --nodes 1 --ntasks-per-node 1 -- python broken.py
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

N, D = 2**22, 16  # particles and dimensions
particles = scores = jnp.zeros((N, D))

away = particles[:, None] - particles[None]  # the mistake: n x n x d numbers
kernel = jnp.exp(-jnp.sum(away**2, axis=2))
phi = (kernel @ scores + 2 * jnp.sum(kernel[:, :, None] * away, axis=1)) / N
print("direction", jax.block_until_ready(phi).shape)
