"""Asks the compiler how much memory a batch needs, before any of it is allocated.

srunbook simulate --nodes 1 --ntasks-per-node 1 -- python fixed.py
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

jax.distributed.initialize()

stats = jax.local_devices()[0].memory_stats() or {}  # None on a CPU
limit = stats.get("bytes_limit", 2**30)  # what JAX may use of this GPU; 1 GiB on a CPU
weights = jnp.ones((256, 4096))


@jax.jit
def gradient(weights: jax.Array, rows: jax.Array) -> jax.Array:
    return jax.grad(lambda w: jnp.mean(jnp.tanh(rows @ w) ** 2))(weights)


def bytes_needed(batch: int) -> int:
    """Memory of one step: what goes in, what comes out, and what stands in between."""
    rows = jax.ShapeDtypeStruct((batch, 256), jnp.float32)  # a shape, and no memory
    needs = gradient.lower(weights, rows).compile().memory_analysis()
    return needs.argument_size_in_bytes + needs.output_size_in_bytes + needs.temp_size_in_bytes


batch = 2**20
while bytes_needed(batch) > 0.8 * limit:
    print(f"{batch:8d} rows need {bytes_needed(batch) / 2**20:9.1f} MiB: too much")
    batch //= 2
print(f"{batch:8d} rows need {bytes_needed(batch) / 2**20:9.1f} MiB: fits")
print("gradient", gradient(weights, jnp.ones((batch, 256))).shape)
