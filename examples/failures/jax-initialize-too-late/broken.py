"""JAX has looked for its devices before it heard of the other processes.

srunbook simulate --nodes 2 --ntasks-per-node 1 --no-kill-on-bad-exit -- python broken.py
"""

from __future__ import annotations

import jax

print(f"{len(jax.devices())} device")  # the mistake; often it hides in an import
jax.distributed.initialize()
print(f"process {jax.process_index()} of {jax.process_count()}")
