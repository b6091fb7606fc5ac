"""How much of the variance SVGD's particles have: by dimension, number of particles, and bandwidth.

python bench/svgd_dispersion.py        # writes bench/results/svgd_dispersion.json and svgd_bandwidth.json

The target is the standard normal distribution, whose variance is 1 along each axis.
"""

from __future__ import annotations

import argparse
import math
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "1")

import jax
import jax.numpy as jnp
import numpy as np
import optax
from helpers.program import write
from measurements import Configuration

import srunbook
from srunbook.svgd import SVGD, DimensionWarning

RESULTS = Path(__file__).parent / "results"
DRAWS = 10


def standard_normal(x: Any) -> Any:
    """Return the log density of the target."""
    return -0.5 * jnp.sum(x**2)


def scaled_median(times: float, n: int) -> Callable[[Any], Any]:
    """Return the default bandwidth times a factor."""
    first, second = np.triu_indices(n, 1)

    def bandwidth(x: Any) -> Any:
        return times * jnp.median(jnp.linalg.norm(x[first] - x[second], axis=1)) ** 2 / math.log(n)

    return bandwidth


def settled(n: int, d: int, steps: int, bandwidth: Any = "median") -> dict[str, list[float]]:
    """Return variances along all axes and discrepancy of particles at rest, and of as many exact draws the latter."""
    start = np.random.default_rng([n, d]).normal(size=(n, d)).astype(np.float32)
    optimizer = optax.adam(optax.cosine_decay_schedule(0.1, steps))
    sampler = SVGD(standard_normal, optimizer=optimizer, bandwidth=bandwidth)
    result = sampler.run(jax.random.key(0), n, steps, start)
    random = np.random.default_rng(0)
    draws = [sampler.ksd(random.normal(size=(n, d)).astype(np.float32)) for _ in range(DRAWS)]
    return {
        "variance": [round(float(value), 5) for value in result.particles.var(axis=0)],
        "ksd": [round(sampler.ksd(result.particles), 5)],
        "ksd_of_exact_draws": [round(value, 5) for value in draws],
        "direction_left": [round(float(result.phi_rms[-1] / result.phi_rms[0]), 6)],
    }


def main() -> None:
    """Take the samples."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--particles", type=int, nargs="+", default=[100, 200, 400, 800])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[1, 2, 5, 10, 20, 50])
    parser.add_argument("--factors", type=float, nargs="+", default=[0.1, 0.3, 1.0, 3.0, 10.0])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--output", type=Path, default=RESULTS, help="a folder (default: %(default)s)")
    options = parser.parse_args()
    warnings.simplefilter("ignore", DimensionWarning)

    by_dimension = [
        Configuration(f"n={n}, d={d}", {"n": n, "d": d}, settled(n, d, options.steps))
        for n in options.particles
        for d in options.dimensions
    ]
    by_bandwidth = [
        Configuration(
            f"{times:g} times the median rule, d={d}",
            {"n": 200, "d": d, "factor": times},
            settled(200, d, options.steps, scaled_median(times, 200)),
        )
        for d in (2, 10)
        for times in options.factors
    ]
    for name, configurations in {"svgd_dispersion": by_dimension, "svgd_bandwidth": by_bandwidth}.items():
        for one in configurations:
            print(one.name, *(f"{quantity} {one.median(quantity):.4g}" for quantity in one.samples))
        write(
            options.output / f"{name}.json",
            configurations,
            versions={"srunbook": srunbook.__version__, "jax": jax.__version__, "optax": optax.__version__},
            parameters={
                "target": "standard normal",
                "steps": options.steps,
                "optimizer": "adam, 0.1 falling to 0 with a cosine",
                "type": "float32",
                "variance": "a sample for each axis",
                "ksd_of_exact_draws": f"{DRAWS} sets of n independent draws",
            },
        )


if __name__ == "__main__":
    main()
