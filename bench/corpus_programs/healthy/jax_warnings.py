"""Ask JAX for what it does not do on this machine; it warns and goes on."""

import jax
import jax.numpy as jnp

print(jnp.arange(4, dtype="int64").dtype, flush=True)
add = jax.jit(lambda one, other: (one[:2] + other[:2]).sum(), donate_argnums=(0,))
print("sum", add(jnp.ones(4), jnp.ones(4)))
