"""A batch that no memory holds.

srunbook simulate --nodes 1 --ntasks-per-node 1 -- python broken.py
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

jax.distributed.initialize()

BATCH = 2**40  # rows on this device: the mistake
weights = jnp.ones((256, 4096))
rows = jnp.ones((BATCH, 256))

gradient = jax.grad(lambda w: jnp.mean(jnp.tanh(rows @ w) ** 2))(weights)
print("gradient", gradient.shape)
