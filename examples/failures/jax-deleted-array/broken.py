"""The old weights are read after a step that took their memory.

python broken.py
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

step = jax.jit(lambda weights: weights + 1.0, donate_argnums=0)
weights = jnp.ones(4)
new = step(weights)
print("change:", float((new - weights).sum()))  # the mistake: `weights` was given away
