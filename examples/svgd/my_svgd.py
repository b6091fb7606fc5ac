"""How fast do two lineages join? SVGD over all nodes, as a whole program.

python my_svgd.py
srunbook simulate --nodes 2 -- python my_svgd.py
"""

import os

import jax
import jax.numpy as jnp
import numpy as np

from srunbook import initialize_distributed, phase_type
from srunbook.svgd import SVGD

# Before the first use of JAX: this finds the other processes.
dist_info = initialize_distributed()
rank = f"rank {dist_info.process_id}/{dist_info.num_processes}"
print(f"{rank} start host={os.uname().nodename}")
print(f"Local devices: {dist_info.local_device_count}")
print(f"Global devices: {dist_info.global_device_count}")

# What was observed: the heights of 16 genealogies of 5 samples each.
heights = np.array([1.16, 0.51, 0.35, 0.3, 1.52, 1.62, 0.4, 1.8])
heights = np.append(heights, [0.85, 2.13, 0.77, 0.94, 0.42, 0.55, 0.2, 0.4])


def log_density(x):  # of the logarithm of the rate, up to a constant
    model = phase_type.coalescent_height(5, rate=jnp.exp(x[0]))
    return model.log_prob(heights).sum() - x[0] ** 2 / 8


sampler = SVGD(log_density, dim=1)
result = sampler.run(jax.random.key(0), n_particles=100, n_steps=200)
rates = jnp.exp(result.particles[:, 0])
if dist_info.is_coordinator:
    print(f"rate {rates.mean():.3f} +- {rates.std():.3f}")
print(f"{rank} end steps={result.steps}")
