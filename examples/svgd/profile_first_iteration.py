"""Where does the time before the first result go? The first step of SVGD, and those after it.

    python profile_first_iteration.py
    srunbook simulate --nodes 2 -- python profile_first_iteration.py
    srun python profile_first_iteration.py --particles 4096

The first step also traces, compiles, and connects the processes. All that is paid once.
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

from srunbook import initialize_distributed
from srunbook.svgd import SVGD

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--particles", type=int, default=256)
parser.add_argument("--steps", type=int, default=100)
options = parser.parse_args()

began = time.perf_counter()
dist_info = initialize_distributed()
met = time.perf_counter()


def log_density(x):  # put your own here
    return -0.5 * jnp.sum(x**2)


sampler = SVGD(log_density, dim=2)
key = jax.random.key(0)


def timed(call, *arguments):
    """Seconds of a call."""
    start = time.perf_counter()
    jax.block_until_ready(call(*arguments))
    return time.perf_counter() - start


start = np.random.default_rng(0).normal(size=(options.particles, 2)).astype(np.float32)
direction = timed(lambda: sampler.direction(start).phi)  # compiles the direction alone, and connects the devices
first = timed(lambda: sampler.run(key, options.particles, options.steps).particles)  # compiles the loop
again = timed(lambda: sampler.run(key, options.particles, options.steps).particles)  # the same loop, compiled already
if dist_info.is_coordinator:
    print(f"meeting the other processes {met - began:8.3f} s")
    print(f"first direction             {direction:8.3f} s: it is compiled, and the devices connect")
    print(f"first {options.steps} steps             {first:8.3f} s: the loop is compiled")
    print(f"the same steps again        {again:8.3f} s: {1e3 * again / options.steps:.3f} ms a step")
