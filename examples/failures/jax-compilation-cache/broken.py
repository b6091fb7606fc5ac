"""Another job has left half a file in the cache of compiled programs.

python broken.py
"""

from __future__ import annotations

from pathlib import Path

import jax

jax.config.update("jax_compilation_cache_dir", "cache")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def double(x: float) -> float:
    return 2 * x


jax.jit(double)(1.0)
for path in Path("cache").glob("*-cache"):
    path.write_bytes(path.read_bytes()[:100])  # as a job that is killed while it writes
jax.clear_caches()
print(jax.jit(double)(2.0))
