"""The shape of the mesh follows from the devices of the job.

srunbook simulate --ntasks-per-node 2 -- python fixed.py
"""

from __future__ import annotations

import sys

import jax

jax.distributed.initialize()
model = 2
data, left = divmod(jax.device_count(), model)
if left:
    sys.exit(f"error: {jax.device_count()} devices do not divide into groups of {model}")
mesh = jax.make_mesh((data, model), ("data", "model"))
print(f"process {jax.process_index()}: {dict(mesh.shape)}")
