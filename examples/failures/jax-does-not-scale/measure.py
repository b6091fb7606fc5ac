"""The same model on the same devices, once with few rows for each and once with many.

    srunbook simulate --nodes 2 --ntasks-per-node 1 -- python measure.py

What is sent does not depend on the number of rows; what is computed does.
"""

from __future__ import annotations

import re
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

FEATURES = 512
REPEATS = 20


def step(weights: jax.Array, rows: jax.Array) -> jax.Array:
    """One step of gradient descent on rows that are spread over the devices of a mesh."""
    return weights - 0.01 * jax.grad(lambda w: jnp.mean(jnp.tanh(rows @ w) ** 2))(weights)


def measure(devices: list[jax.Device], rows_per_device: int) -> tuple[float, float, float]:
    """Milliseconds of a step, million operations on each device, megabytes to be summed."""
    mesh = Mesh(np.array(devices), ("batch",), axis_types=(jax.sharding.AxisType.Explicit,))
    whole = NamedSharding(mesh, P())
    mine = sum(device.process_index == jax.process_index() for device in devices)
    rows = np.ones((mine * rows_per_device, FEATURES), np.float32)
    rows = jax.make_array_from_process_local_data(NamedSharding(mesh, P("batch")), rows)
    weights = jax.device_put(np.ones((FEATURES, FEATURES), np.float32) / FEATURES, whole)
    program = jax.jit(step, out_shardings=whole).lower(weights, rows).compile()
    jax.block_until_ready(program(weights, rows))  # the first call connects: leave it out
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(program(weights, rows))
        times.append(1e3 * (time.perf_counter() - start))
    sums = re.findall(r"= f32\[(\d+),(\d+)\]\S* all-reduce(?:-start)?\(", program.as_text())
    summed = sum(4 * int(a) * int(b) for a, b in sums) / 1e6
    return float(np.median(times)), program.cost_analysis()["flops"] / 1e6, summed


jax.distributed.initialize()
for rows_per_device in (16, 2048):
    alone, _, _ = measure(jax.local_devices(), rows_per_device)
    together, work, summed = measure(jax.devices(), rows_per_device)
    if jax.process_index() == 0:
        print(f"{rows_per_device} rows on each device:", end=" ")
        print(f"{work:.1f} million operations, {summed:.2f} MB to sum")
        print(f"    a step alone {alone:.2f} ms, with the others {together:.2f} ms,", end=" ")
        print(f"efficiency {alone / together:.0%}")
