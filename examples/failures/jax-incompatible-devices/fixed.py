"""Weights and batch lie on the same mesh.

srunbook simulate --ntasks-per-node 2 -- python fixed.py
"""

from __future__ import annotations

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("devices",))
batch = jax.make_array_from_process_local_data(NamedSharding(mesh, P("devices")), np.ones((2, 4), np.float32))
weights = jax.device_put(np.ones(4, np.float32), NamedSharding(mesh, P()))  # the same on every device
total = jax.jit(lambda w, x: (x @ w).sum())(weights, batch)
print(f"process {jax.process_index()}: {float(total)}")
