"""Three ways to look at an array that is spread over processes.

srunbook simulate --nodes 2 --ntasks-per-node 1 -- python fixed.py
"""

from __future__ import annotations

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("devices",))
mine = np.full(jax.local_device_count(), jax.process_index(), np.float32)
x = jax.make_array_from_process_local_data(NamedSharding(mesh, P("devices")), mine)

# 1. Only what is here: no sending, any process may do it alone.
print("here:", [np.asarray(shard.data).tolist() for shard in x.addressable_shards])

# 2. A result that every device holds whole: for sums, means, losses.
print("sum:", float(jax.jit(lambda a: a.sum(), out_shardings=NamedSharding(mesh, P()))(x)))

# 3. All of it, everywhere. A collective: not inside `if jax.process_index() == 0`.
print("all:", multihost_utils.process_allgather(x, tiled=True).tolist())
