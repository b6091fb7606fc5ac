"""A mesh of four devices, in a job with two.

srunbook simulate --ntasks-per-node 2 --no-kill-on-bad-exit -- python broken.py
"""

from __future__ import annotations

import jax

jax.distributed.initialize()
mesh = jax.make_mesh((2, 2), ("data", "model"))  # the mistake: numbers typed by hand
print(f"process {jax.process_index()}: {dict(mesh.shape)}")
