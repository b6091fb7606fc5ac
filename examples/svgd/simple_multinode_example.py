"""Your own JAX code on all nodes: `initialize_distributed()`, and nothing else of srunbook's machinery.

    python simple_multinode_example.py
    srunbook simulate --nodes 2 --ntasks-per-node 2 -- python simple_multinode_example.py

It computes the posterior of my_svgd.py exactly, on a grid of rates that lies over all devices of all processes.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from srunbook import initialize_distributed, phase_type

POINTS = 256  # of the grid, on each device
heights = np.array([1.16, 0.51, 0.35, 0.3, 1.52, 1.62, 0.4, 1.8, 0.85, 2.13, 0.77, 0.94, 0.42, 0.55, 0.2, 0.4])


def log_density(x):
    """Return the log density of the logarithm of the rate, as in my_svgd.py."""
    return phase_type.coalescent_height(5, rate=jnp.exp(x)).log_prob(heights).sum() - x**2 / 8


def run_my_computation(dist_info):
    """Compute mean and standard deviation of the rate; every process calls this, and gets the same."""
    mesh = jax.make_mesh((dist_info.global_device_count,), ("grid",), axis_types=(AxisType.Auto,))

    # One global array: each process makes only the part that lies on its own devices.
    values = np.linspace(-1.0, 2.0, POINTS * dist_info.global_device_count, dtype=np.float32)
    grid = jax.make_array_from_callback(values.shape, NamedSharding(mesh, P("grid")), values.__getitem__)

    @partial(jax.jit, out_shardings=NamedSharding(mesh, P()))  # the answer is on every device
    def moments(grid):
        logs = jax.vmap(log_density)(grid)
        weights = jax.nn.softmax(logs)  # a maximum and a sum over all devices: JAX puts the exchange in
        mean = jnp.sum(weights * jnp.exp(grid))
        return mean, jnp.sqrt(jnp.sum(weights * (jnp.exp(grid) - mean) ** 2))

    return moments(grid)


dist_info = initialize_distributed()
who = f"Process {dist_info.process_id}/{dist_info.num_processes}"
print(f"{who}: {dist_info.local_device_count} of {dist_info.global_device_count} devices")
mean, deviation = run_my_computation(dist_info)
if dist_info.is_coordinator:
    print(f"rate {mean:.3f} +- {deviation:.3f}")
