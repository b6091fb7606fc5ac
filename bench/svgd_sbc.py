"""Simulation-based calibration of SVGD: are its posteriors as wide as they should be? After Talts and others (2018).

python bench/svgd_sbc.py               # 300 replicates of 5 models; writes bench/results/svgd_sbc.json

A replicate draws parameters from the prior and data for them, lets SVGD find the posterior, and notes how many
particles are smaller than the true first parameter. Where the posterior is right, all ranks are equally likely.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "1")

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy
import scipy.stats
from helpers.program import options_of, write
from measurements import Configuration

import srunbook
from srunbook import phase_type
from srunbook.svgd import SVGD

BINS = 20


@dataclass(frozen=True)
class Model:
    """A prior, data, and a posterior.

    Args:
        name: What it is called.
        dim: Number of parameters.
        prior: Draws n parameter vectors, shape (n, dim).
        data: Draws data for one of them.
        log_prior: Its log density.
        log_likelihood: Of parameters and data.
        exact: Draws n values of the first parameter from the exact posterior of some data; None without a closed form.
    """

    name: str
    dim: int
    prior: Callable[[np.random.Generator, int], np.ndarray]
    data: Callable[[np.random.Generator, np.ndarray], Any]
    log_prior: Callable[[Any], Any]
    log_likelihood: Callable[[Any, Any], Any]
    exact: Callable[[np.random.Generator, Any, int], np.ndarray] | None = None


def erlang() -> Model:
    """Return the rate of Erlang times of shape 2, 5 of them, with a gamma prior: a gamma posterior."""
    shape, times, a, b = 2, 5, 4.0, 2.0

    def data(random: np.random.Generator, x: np.ndarray) -> np.ndarray:
        return random.gamma(shape, math.exp(-x[0]), times).astype(np.float32)

    def exact(random: np.random.Generator, data: np.ndarray, n: int) -> np.ndarray:
        return np.log(random.gamma(a + times * shape, 1 / (b + float(data.sum())), n))

    return Model(
        "Erlang rate, d=1",
        1,
        lambda random, n: np.log(random.gamma(a, 1 / b, (n, 1))),
        data,
        lambda x: a * x[0] - b * jnp.exp(x[0]),  # of the logarithm of the rate, hence a and not a - 1
        lambda x, data: phase_type.erlang(shape, jnp.exp(x[0])).log_prob(data).sum(),
        exact,
    )


def means(d: int) -> Model:
    """Return the means of d normal distributions, one value of each: a normal posterior with variance 1/2."""
    return Model(
        f"normal means, d={d}",
        d,
        lambda random, n: random.normal(size=(n, d)),
        lambda random, x: (x + random.normal(size=d))[None].astype(np.float32),
        lambda x: -0.5 * jnp.sum(x**2),
        lambda x, data: -0.5 * jnp.sum((data[0] - x) ** 2),
        lambda random, data, n: random.normal(data[0, 0] / 2, math.sqrt(0.5), n),
    )


def replicates(model: Model, options: argparse.Namespace) -> list[Configuration]:
    """Return all replicates of a model; where it has a closed form, its exact draws come as a control."""
    steps = optax.adam(optax.cosine_decay_schedule(0.1, options.steps))
    ranks: dict[str, list[int]] = {"rank": [], "exact": []}
    ratios, rest = [], []
    sampler = None
    for number in range(options.replicates):
        random = np.random.default_rng([model.dim, number])
        truth = model.prior(random, 1)[0]
        data = model.data(random, truth)
        start = model.prior(random, options.particles).astype(np.float32)
        if sampler is None:
            sampler = SVGD(model.log_prior, log_likelihood=model.log_likelihood, data=data, optimizer=steps)
        sampler.data = data  # of the same shape: nothing is compiled again
        result = sampler.run(jax.random.key(number), options.particles, options.steps, start)
        found = result.particles[:, 0]
        ranks["rank"].append(int((found < truth[0]).sum()))
        rest.append(float(result.phi_rms[-1] / result.phi_rms[0]))
        if model.exact:
            draws = model.exact(random, data, options.particles)
            ranks["exact"].append(int((draws < truth[0]).sum()))
            long = model.exact(random, data, 100 * options.particles)
            ratios.append(float(found.std() / long.std()))
    more = {"direction_left": [round(value, 6) for value in rest]}
    if ratios:
        more["sd_ratio"] = [round(value, 4) for value in ratios]
    parameters = {"model": model.name, "d": model.dim, "draws": "SVGD"}
    found_rows = [Configuration(model.name, parameters, calibration(ranks["rank"], options.particles) | more)]
    if model.exact:
        samples = calibration(ranks["exact"], options.particles)
        found_rows.append(Configuration(f"control, d={model.dim}", parameters | {"draws": "exact"}, samples))
    return found_rows


def calibration(ranks: list[int], particles: int) -> dict[str, list[float]]:
    """Return ranks, and from them how often the middle half and 90 % hold the truth, and whether they are uniform."""
    array = np.array(ranks)
    possible = np.arange(particles + 1)
    found, expected = (np.bincount(values * BINS // (particles + 1), minlength=BINS) for values in (array, possible))
    expected = expected * len(ranks) / len(possible)
    statistic, p = scipy.stats.chisquare(found, expected)

    def coverage(share: float) -> float:
        """Return the ranks of the middle, corrected for those that there are: 201 do not divide evenly."""
        inside = np.abs(possible - particles / 2) <= share * (particles + 1) / 2
        return round(100 * float(inside[array].mean()) * share / float(inside.mean()), 2)

    return {
        "rank": [float(rank) for rank in ranks],
        "coverage_50_percent": [coverage(0.5)],
        "coverage_90_percent": [coverage(0.9)],
        "chi_square": [round(float(statistic), 2)],
        "p_value": [float(f"{p:.3g}")],
    }


def main() -> None:
    """Take all replicates, model after model."""
    options = options_of(__doc__, "svgd_sbc", particles=200, replicates=300, steps=300)

    configurations: list[Configuration] = []
    controls: list[Configuration] = []
    for model in (erlang(), means(2), means(5), means(10), means(20)):
        row, *control = replicates(model, options)
        configurations.append(row)
        controls = control or controls
        figures = ("coverage_50_percent", "coverage_90_percent", "chi_square", "p_value", "sd_ratio", "direction_left")
        print(row.name, *(f"{name} {row.median(name):.4g}" for name in figures if name in row.samples), flush=True)
    configurations += controls[-1:]
    write(
        options.output,
        configurations,
        versions={
            "srunbook": srunbook.__version__,
            "jax": jax.__version__,
            "optax": optax.__version__,
            "scipy": scipy.__version__,
        },
        parameters={
            "particles": options.particles,
            "replicates": options.replicates,
            "steps": options.steps,
            "bins": BINS,
            "optimizer": "adam, 0.1 falling to 0 with a cosine",
            "start": "draws of the prior",
            "bandwidth": "median",
            "type": "float32",
        },
    )


if __name__ == "__main__":
    main()
