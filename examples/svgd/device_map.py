"""Which device of which process holds which particles.

python device_map.py
srunbook simulate --nodes 2 --gpus-per-node 3 -- python device_map.py
"""

from __future__ import annotations

import argparse
import hashlib
import os

import jax
import jax.numpy as jnp

from srunbook import initialize_distributed
from srunbook.svgd import SVGD


def log_density(x: jax.Array) -> jax.Array:
    """Return the log density of a standard normal distribution."""
    return -0.5 * jnp.sum(x**2)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Which device of which process holds which particles.", allow_abbrev=False
    )
    parser.add_argument("--particles", type=int, default=21)
    options = parser.parse_args()

    with initialize_distributed() as info:
        rank, host = f"rank {info.process_id}/{info.num_processes}", os.environ.get("SLURMD_NODENAME", "localhost")
        print(f"{rank} start host={host} device={jax.default_backend()} framework=jax-{jax.__version__}", flush=True)
        sampler = SVGD(log_density, dim=2)
        for holding in sampler.placement(options.particles):
            if holding.process_id == info.process_id:  # each process speaks of its own
                held = holding.particles
                numbers = f"{held[0]} to {held[-1]}" if held else "none"
                print(f"process {info.process_id}  {holding.device:9}  particles {numbers}", flush=True)
        result = sampler.run(jax.random.key(0), options.particles, 50)
        params = hashlib.sha256(result.particles.tobytes()).hexdigest()[:12]
        print(f"{rank} end steps={result.steps} params={params}", flush=True)


if __name__ == "__main__":
    main()
