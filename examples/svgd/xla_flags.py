"""Does a flag of XLA do anything? Starts Python anew with each one, and compares.

python xla_flags.py
"""

from __future__ import annotations

import os
import subprocess
import sys

FLAGS = (
    "",
    "--xla_force_host_platform_device_count=4",
    "--xla_cpu_multi_thread_eigen=true",
    "--xla_cpu_enable_fast_math=true",
)

LOOK = """
import jax, jax.numpy as jnp, numpy as np

def compensated(carry, x):  # Kahan's sum: it keeps what rounding loses, and adds it later
    total, lost = carry
    y = x - lost
    new = total + y
    return (new, (new - total) - y), None

@jax.jit
def total(xs):
    return jax.lax.scan(compensated, (jnp.float32(0), jnp.float32(0)), xs)[0][0]

print(f"{jax.device_count()} devices, 100000 times 0.1 is {total(np.full(100000, 0.1, np.float32)):.2f}")
"""

if __name__ == "__main__":
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
    for flag in FLAGS:
        environ = {**kept, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flag}
        seen = subprocess.run([sys.executable, "-c", LOOK], env=environ, capture_output=True, text=True, check=True)
        print(f"{flag or 'no flag':<42} {seen.stdout.strip()}")
