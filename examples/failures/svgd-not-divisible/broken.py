"""Nine particles for two devices, in JAX alone.

srunbook simulate --nodes 2 --ntasks-per-node 1 -- python broken.py
"""

from __future__ import annotations

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("particles",), axis_types=(AxisType.Auto,))
particles = np.zeros((9, 1), np.float32)  # the mistake

spread = jax.make_array_from_callback(particles.shape, NamedSharding(mesh, P("particles")), particles.__getitem__)
print("spread over", spread.sharding.device_set)
