"""The variance that particles come to in several packages: the same target, number of particles and start.

nox -s bench -- svgd_agreement         # writes bench/results/svgd_agreement.json

The target is a standard normal distribution of one dimension. Particles at rest have somewhat less than its variance of
1. Each package takes its own default kernel and bandwidth, and the settings of bench/svgd_speed.py.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import site
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "1")

import jax
import jax.numpy as jnp
import numpy as np
import optax
from helpers.program import write
from helpers.svgd_loop import normal
from measurements import Configuration
from ranks import svgd_peers

import srunbook
from srunbook.svgd import SVGD

RESULT = Path(__file__).parent / "results" / "svgd_agreement.json"
N, D = 50, 1
REST, EVERY, COUNT = 1500, 50, 10
"""Steps before the first variance is taken, steps between two, and how many."""


def ours() -> list[float]:
    """Return the variances of our particles, which go on from what they were."""
    sampler = SVGD(lambda x: -0.5 * jnp.sum(x**2), optimizer=optax.adam(0.05))
    key, particles, found = jax.random.key(0), normal(N, D), []
    for steps in (REST, *[EVERY] * (COUNT - 1)):
        particles = sampler.run(key, N, steps, particles).particles
        found.append(float(np.var(particles)))
    return found


def theirs(package: str) -> list[float]:
    """Return the variances of a package's particles."""
    step, state = svgd_peers.STEPS[package](N, D)
    call = step if package == "phasic" else jax.jit(step)
    found = []
    for number in range(REST + EVERY * (COUNT - 1)):
        state = call(state)
        if number + 1 >= REST and (number + 1 - REST) % EVERY == 0:
            found.append(float(np.var(_particles(state))))
    return found


def _particles(state: Any) -> Any:
    """Return the particles of a state: its first array of that shape; those of the optimizer come after it."""
    return next(leaf for leaf in jax.tree.leaves(state) if getattr(leaf, "shape", None) == (N, D))


def main() -> None:
    """Let each package come to rest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=Path, required=True, metavar="FOLDER", help="where the packages are installed")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    site.addsitedir(str(options.peers.resolve()))
    found = {"srunbook": ours(), **{package: theirs(package) for package in svgd_peers.STEPS}}
    rows = [
        Configuration(package, {"package": package}, {"variance": [round(one, 5) for one in variances]})
        for package, variances in found.items()
    ]
    write(
        options.output,
        rows,
        versions={"srunbook": srunbook.__version__, "jax": jax.__version__}
        | {package: importlib.metadata.version(package) for package in svgd_peers.STEPS},
        parameters={
            "n": N,
            "d": D,
            "target": "standard normal",
            "samples": f"after {REST} steps, and then after every {EVERY}",
            "step_size": 0.05,
        },
    )


if __name__ == "__main__":
    main()
