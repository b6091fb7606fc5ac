"""Compare meshes before you train: what each device holds, and what the compiler makes the devices exchange.

python compare_meshes.py

It takes the model and the training step from sharded_jax.py, which lies beside it.
"""

import re

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from sharded_jax import BATCH, BATCH_SIZE, CONTEXT, MODEL, OPTIMIZER, make_mesh, train_step

jax.config.update("jax_platforms", "cpu")  # needs no GPU
jax.config.update("jax_num_cpu_devices", 8)  # as if there were eight; before anything else that uses JAX
KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")

for asked in ("data=8", "shard=8", "data=4,shard=2", "shard=4,tensor=2"):
    mesh = make_mesh(asked)
    with jax.set_mesh(mesh):
        params = {  # shapes, no data
            name: jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))
            for name, (shape, spec) in MODEL.items()
        }
        state = jax.eval_shape(OPTIMIZER.init, params)
        state = optax.tree.map_params(OPTIMIZER, lambda _, param: param, state, params)  # divided as the parameters are
        batch = jax.ShapeDtypeStruct((BATCH_SIZE, CONTEXT + 1), jnp.int32, sharding=NamedSharding(mesh, BATCH))
        step = train_step.lower(params, state, batch).compile()
    held = step.memory_analysis().argument_size_in_bytes / 2**10
    found = re.findall(rf" ({'|'.join(KINDS)})(?:-start)?\(", step.as_text())
    exchanged = ", ".join(f"{found.count(kind)} {kind}" for kind in KINDS if kind in found)
    print(f"{asked:16} holds {held:4.0f} KiB; {exchanged}")
