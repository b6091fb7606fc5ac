"""Bayesian logistic regression on scikit-learn's breast_cancer: 31 coefficients and their common spread.

    python logistic_regression.py
    srunbook simulate --nodes 2 -- python logistic_regression.py

It needs scikit-learn, which srunbook does not bring along.

A particle is (log precision, intercept, 30 weights). The coefficients have a normal prior with that precision,
and the precision has an exponential prior with mean 100, as in Liu and Wang (2016).
"""

from __future__ import annotations

import argparse
import hashlib
import os
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_breast_cancer

from srunbook import initialize_distributed
from srunbook.svgd import SVGD

DIMENSIONS = 32
TEST_ROWS = 114  # a fifth, which the training does not see


class Rows(NamedTuple):
    """Cells of tumours: measures with mean 0 and variance 1 beside a 1 for the intercept; +1 benign, -1 malignant."""

    features: np.ndarray
    labels: np.ndarray


def load() -> tuple[Rows, Rows]:
    """Return rows to train on, and rows to test with: the same on every process."""
    measures, benign = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(measures))
    train = order[TEST_ROWS:]
    scaled = (measures - measures[train].mean(axis=0)) / measures[train].std(axis=0)
    features = np.column_stack([np.ones(len(scaled)), scaled]).astype(np.float32)
    labels = np.where(benign, 1, -1).astype(np.float32)
    test = order[:TEST_ROWS]
    return Rows(features[train], labels[train]), Rows(features[test], labels[test])


# [model]
def log_prior(x: jax.Array) -> jax.Array:
    """Return the log density of (log precision, coefficients), shape (32,)."""
    log_precision, coefficients = x[0], x[1:]
    precision = jnp.exp(log_precision)
    spread = 0.5 * (len(coefficients) * log_precision - precision * jnp.sum(coefficients**2))
    return spread + log_precision - 0.01 * precision  # + log_precision: of the logarithm


def log_likelihood(x: jax.Array, rows: Rows) -> jax.Array:
    """Return the log likelihood of the labels of some rows."""
    return jax.nn.log_sigmoid(rows.labels * (rows.features @ x[1:])).sum()


# [/model]


def predict(particles: np.ndarray, rows: Rows) -> tuple[float, float]:
    """Return the share of right answers, and the mean log probability of the true labels; all particles vote."""
    votes = jax.nn.sigmoid(rows.labels[:, None] * (rows.features @ particles[:, 1:].T)).mean(axis=1)
    return float((votes > 0.5).mean()), float(jnp.log(votes).mean())


def starts(key: jax.Array, n: int) -> jax.Array:
    """Draw the particles to start from, shape (n, 32): near 0, where the prior holds the coefficients."""
    return 0.1 * jax.random.normal(key, (n, DIMENSIONS))


def main() -> None:
    parser = argparse.ArgumentParser(description="Bayesian logistic regression by SVGD.", allow_abbrev=False)
    parser.add_argument("--particles", type=int, default=320)
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args()
    train, test = load()

    with initialize_distributed() as info:
        rank, host = f"rank {info.process_id}/{info.num_processes}", os.environ.get("SLURMD_NODENAME", "localhost")
        print(f"{rank} start host={host} device={jax.default_backend()} framework=jax-{jax.__version__}", flush=True)
        # [sampler]
        steps = optax.adam(optax.cosine_decay_schedule(0.05, options.steps))
        sampler = SVGD(
            log_prior,
            dim=DIMENSIONS,
            log_likelihood=log_likelihood,
            data=train,
            optimizer=steps,
        )
        result = sampler.run(jax.random.key(0), options.particles, options.steps, starts)
        # [/sampler]
        if info.is_coordinator:
            right, score = predict(result.particles, test)
            print(f"{options.particles} particles on {info.global_device_count} devices")
            print(f"right answers in {TEST_ROWS} test rows: {right:.3f}")
            print(f"mean log probability of the labels: {score:.3f}")
        params = hashlib.sha256(result.particles.tobytes()).hexdigest()[:12]
        print(f"{rank} end steps={result.steps} params={params}", flush=True)


if __name__ == "__main__":
    main()
