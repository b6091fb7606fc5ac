"""First the other processes, then the devices.

srunbook simulate --nodes 2 --ntasks-per-node 1 -- python fixed.py
"""

from __future__ import annotations

import jax

jax.distributed.initialize()  # and only then imports that may compute something
print(f"{len(jax.devices())} devices")
print(f"process {jax.process_index()} of {jax.process_count()}")
