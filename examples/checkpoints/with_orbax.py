"""Save a JAX array that lies on several processes with Orbax, and resume on any number of them.

srunbook simulate --nodes 2 -- python with_orbax.py 3
srunbook simulate --nodes 4 -- python with_orbax.py 6

The argument is the step to train to. The checkpoints are folders in checkpoints/, one for each step.
"""

import os
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from orbax.checkpoint import __version__ as orbax_version
from orbax.checkpoint import v1 as ocp

assert jax.__version_info__ >= (0, 6), f"needs JAX 0.6 or newer, found {jax.__version__}"
assert tuple(map(int, orbax_version.split(".")[:2])) >= (0, 12), f"needs Orbax 0.12 or newer, found {orbax_version}"
jax.distributed.initialize()
sys.excepthook = lambda *error: (sys.__excepthook__(*error), os._exit(1))  # or JAX waits for the others
rng = np.random.default_rng(0)
x, y = np.float32(rng.normal(size=(64, 8))), np.float32(rng.normal(size=(64, 4)))  # put your own data here
mesh = jax.make_mesh((jax.device_count(),), ("rows",))
rows = NamedSharding(mesh, P("rows"))  # each process holds some rows of each parameter
state = {name: jax.device_put(np.zeros((8, 4), np.float32), rows) for name in ("weight", "momentum")}


@jax.jit
def train(state):
    loss, gradient = jax.value_and_grad(lambda weight: jnp.mean((x @ weight - y) ** 2))(state["weight"])
    momentum = 0.9 * state["momentum"] + gradient
    return {"weight": state["weight"] - 0.1 * momentum, "momentum": momentum}, loss


checkpointer = ocp.training.Checkpointer(Path("checkpoints").absolute())
seen = checkpointer.latest.step if checkpointer.latest else 0
done = int(multihost_utils.broadcast_one_to_all(seen))  # all resume after the step that process 0 sees
if done:
    state = checkpointer.load(done, abstract_state=state)  # laid out over the processes as state is now

for step in range(done + 1, int(sys.argv[1]) + 1):
    state, loss = train(state)
    if jax.process_index() == 0:
        print(f"{jax.process_count()} processes, step {step}: loss {loss:.6f}", flush=True)
    checkpointer.save(step, state)  # every process calls it
checkpointer.close()
