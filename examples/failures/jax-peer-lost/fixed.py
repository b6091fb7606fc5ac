"""Both processes live to the end.

srunbook simulate --ntasks-per-node 2 -- python fixed.py
"""

from __future__ import annotations

import time

import jax

jax.distributed.initialize(heartbeat_timeout_seconds=10)  # in place of 100
print(f"process {jax.process_index()} of {jax.process_count()}", flush=True)
time.sleep(1)
