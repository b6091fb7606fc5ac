"""First the other processes, then the devices.

srunbook simulate --nodes 2 --ntasks-per-node 1 -- python fixed.py
"""

from __future__ import annotations

import jax

jax.distributed.initialize()  # before imports of your own code, if that code computes something when imported
print(f"{len(jax.devices())} devices")
print(f"process {jax.process_index()} of {jax.process_count()}")
