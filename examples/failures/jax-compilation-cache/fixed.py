"""Each job has a cache of its own.

python fixed.py
"""

from __future__ import annotations

import os

import jax

job = os.environ.get("SLURM_JOB_ID", "no-job")
jax.config.update("jax_compilation_cache_dir", f"cache/{job}")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def double(x: float) -> float:
    return 2 * x


jax.jit(double)(1.0)
jax.clear_caches()
print(jax.jit(double)(2.0))
