"""A proxy meant for the web stands between the processes.

srunbook simulate --nodes 2 --ntasks-per-node 1 --no-kill-on-bad-exit -- python broken.py
"""

from __future__ import annotations

import os

import jax

# What a site's profile sets for downloads. Nobody listens here; a real proxy would refuse.
os.environ["http_proxy"] = "http://127.0.0.1:9"

# JAX waits 300 seconds unless told otherwise; five are enough for a demonstration.
jax.distributed.initialize(initialization_timeout=5)
print(f"process {jax.process_index()} of {jax.process_count()}")
