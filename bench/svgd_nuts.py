"""Bayesian logistic regression by SVGD beside NUTS: means, standard deviations, and predictions.

PYTHONPATH=... python bench/svgd_nuts.py   # writes bench/results/svgd_nuts.json; needs blackjax

The model is that of examples/svgd/logistic_regression.py, with 32 parameters. A sample is one parameter, in the order
log precision, intercept, weights. NUTS runs twice with other seeds: the second run shows what chance alone does.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "1")

import blackjax
import jax
import numpy as np
import optax
import sklearn
from helpers.program import example, write
from measurements import Configuration

import srunbook
from srunbook.svgd import SVGD

model = example("svgd/logistic_regression.py")
RESULT = Path(__file__).parent / "results" / "svgd_nuts.json"
CHAINS = 4


def nuts(train: Any, seed: int, warm_up: int, draws: int) -> tuple[Any, int]:
    """Draw of all chains, shape (chains, draws, 32), and how many of them diverged."""

    def log_density(x: Any) -> Any:
        return model.log_prior(x) + model.log_likelihood(x, train)

    def chain(key: Any) -> Any:
        first, second, third = jax.random.split(key, 3)
        adaptation = blackjax.window_adaptation(blackjax.nuts, log_density)
        (state, parameters), _ = adaptation.run(second, model.starts(first, 1)[0], num_steps=warm_up)
        kernel = blackjax.nuts(log_density, **parameters).step

        def one(state: Any, key: Any) -> Any:
            state, info = kernel(key, state)
            return state, (state.position, info.is_divergent)

        return jax.lax.scan(one, state, jax.random.split(third, draws))[1]

    positions, divergent = jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(seed), CHAINS))
    return positions, int(divergent.sum())


def svgd(train: Any, n: int, steps: int) -> tuple[np.ndarray, float]:
    """Bring particles to rest; return them, and how long their last direction is beside the first."""
    optimizer = optax.adam(optax.cosine_decay_schedule(0.05, steps))
    sampler = SVGD(
        model.log_prior, dim=model.DIMENSIONS, log_likelihood=model.log_likelihood, data=train, optimizer=optimizer
    )
    result = sampler.run(jax.random.key(0), n, steps, model.starts)
    return result.particles, float(result.phi_rms[-1] / result.phi_rms[0])


def summary(draws: np.ndarray, test: Any) -> dict[str, list[float]]:
    """Return the mean and standard deviation of each parameter, and how well the test rows are predicted."""
    right, score = model.predict(draws, test)
    return {
        "mean": [round(float(value), 5) for value in draws.mean(axis=0)],
        "sd": [round(float(value), 5) for value in draws.std(axis=0)],
        "right_answers": [round(right, 4)],
        "log_score": [round(score, 5)],
    }


def beside(found: dict[str, list[float]], nuts: dict[str, list[float]]) -> dict[str, list[float]]:
    """Compare with NUTS: how far each mean is off, in standard deviations, and the ratio of standard deviations."""
    means, deviations = np.array(found["mean"]), np.array(found["sd"])
    of_nuts = np.array(nuts["sd"])
    return {
        "mean_off_in_sd": [round(float(value), 4) for value in np.abs(means - nuts["mean"]) / of_nuts],
        "sd_ratio": [round(float(value), 4) for value in deviations / of_nuts],
    }


def main() -> None:
    """Run NUTS twice, and SVGD with several numbers of particles."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--warm-up", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=1000, help="of each of the 4 chains")
    parser.add_argument("--particles", type=int, nargs="+", default=[320, 1000, 4000])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    train, test = model.load()

    rows: dict[str, dict[str, list[float]]] = {}
    for name, seed in (("NUTS", 0), ("NUTS again", 1)):
        positions, divergent = nuts(train, seed, options.warm_up, options.draws)
        rows[name] = summary(np.asarray(positions).reshape(-1, model.DIMENSIONS), test)
        rows[name]["ess"] = [round(float(value), 1) for value in blackjax.diagnostics.effective_sample_size(positions)]
        rows[name]["r_hat"] = [round(float(value), 5) for value in blackjax.diagnostics.rhat(positions)]
        rows[name]["divergent"] = [float(divergent)]
    for n in options.particles:
        particles, left = svgd(train, n, options.steps)
        rows[f"SVGD, n={n}"] = {**summary(particles, test), "direction_left": [round(left, 6)]}
    for name, found in rows.items():
        if name != "NUTS":
            found |= beside(found, rows["NUTS"])
        print(name, *(f"{quantity} {np.median(values):.4g}" for quantity, values in found.items()))

    write(
        options.output,
        [Configuration(name, {"parameters": model.DIMENSIONS}, found) for name, found in rows.items()],
        versions={
            "srunbook": srunbook.__version__,
            "jax": jax.__version__,
            "blackjax": blackjax.__version__,
            "optax": optax.__version__,
            "scikit-learn": sklearn.__version__,
        },
        parameters={
            "chains": CHAINS,
            "warm_up": options.warm_up,
            "draws_of_each_chain": options.draws,
            "adaptation": "window, diagonal",
            "svgd_steps": options.steps,
            "optimizer": "adam, 0.05 falling to 0 with a cosine",
            "bandwidth": "median",
            "a sample": "one parameter: log precision, intercept, 30 weights",
        },
    )


if __name__ == "__main__":
    main()
