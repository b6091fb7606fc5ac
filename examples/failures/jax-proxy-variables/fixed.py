"""Without the proxy the processes find each other.

    srunbook simulate --nodes 2 --ntasks-per-node 1 -- python fixed.py

In a job script, one line before srun does it: unset http_proxy https_proxy
"""

from __future__ import annotations

import os

import jax

os.environ["http_proxy"] = "http://127.0.0.1:9"  # from the profile of the site, as before

for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
    os.environ.pop(name, None)  # the names in capitals only cause the warning

jax.distributed.initialize(initialization_timeout=60)
print(f"process {jax.process_index()} of {jax.process_count()}")
