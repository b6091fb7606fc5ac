"""How much memory does a training step take? Ask the compiler, before you ask for a GPU.

python step_memory.py
"""

import jax
import jax.numpy as jnp

BATCH_SIZE, WIDTH, BLOCKS = 4096, 256, 12


def block(x, weights):
    return x + jnp.tanh(x @ weights["up"]) @ weights["down"], None


def gradient(params, x, y, pieces, recompute):
    layer = jax.checkpoint(block) if recompute else block

    def loss_of(params, x, y):
        return jnp.mean((jax.lax.scan(layer, x, params)[0] - y) ** 2)

    def add(total, piece):
        return jax.tree.map(jnp.add, total, jax.grad(loss_of)(params, *piece)), None

    x, y = (a.reshape(pieces, -1, WIDTH) for a in (x, y))
    return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), (x, y))[0]


batch = jax.ShapeDtypeStruct((BATCH_SIZE, WIDTH), jnp.float32)  # a shape, no data
params = {
    "up": jax.ShapeDtypeStruct((BLOCKS, WIDTH, 4 * WIDTH), jnp.float32),
    "down": jax.ShapeDtypeStruct((BLOCKS, 4 * WIDTH, WIDTH), jnp.float32),
}
for pieces, recompute in ((1, False), (4, False), (1, True), (4, True)):
    step = jax.jit(gradient, static_argnums=(3, 4))
    step = step.lower(params, batch, batch, pieces, recompute)
    needed = step.compile().memory_analysis().temp_size_in_bytes
    print(f"pieces={pieces} recompute={recompute!s:5} {needed / 2**20:6.0f} MiB")
