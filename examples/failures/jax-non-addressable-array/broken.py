"""Each process asks for an array of which it holds only a part.

srunbook simulate --nodes 2 --ntasks-per-node 1 --no-kill-on-bad-exit -- python broken.py
"""

from __future__ import annotations

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("devices",))
mine = np.full(jax.local_device_count(), jax.process_index(), np.float32)
x = jax.make_array_from_process_local_data(NamedSharding(mesh, P("devices")), mine)

print(np.asarray(x))  # the mistake: half of x is in another process
