"""Cases with an exact answer in 64 bits, on all devices of all processes; a script for test_svgd.py.

python svgd_oracles.py right        # prints JSON: how far each result is from what it should be
python svgd_oracles.py wrong-sign   # the same with particles that attract each other
"""

from __future__ import annotations

import json
import math
import sys

import numpy as np


def dense(x: np.ndarray, scores: np.ndarray, h: float) -> np.ndarray:
    """Compute the definition of the direction: one term for each pair."""
    between = x[:, None] - x[None]  # x_i - x_j
    kernel = np.exp(-np.sum(between**2, axis=2) / h)
    return (kernel @ scores + np.sum(kernel[:, :, None] * between, axis=1) * 2 / h) / len(x)


def adam(x: np.ndarray, steps: int, rate: float) -> np.ndarray:
    """Take steps on a normal distribution with the default bandwidth."""
    mean = square = np.zeros_like(x)
    for step in range(1, steps + 1):
        median = np.median(np.linalg.norm(x[:, None] - x[None], axis=2)[np.triu_indices(len(x), 1)])
        phi = dense(x, -x, median**2 / math.log(len(x)))
        mean, square = 0.9 * mean + 0.1 * phi, 0.999 * square + 0.001 * phi**2
        x = x + rate * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    return x


def errors() -> dict[str, float]:
    """Compute how far each result is from the exact one."""
    import jax
    import jax.numpy as jnp
    import optax

    from srunbook.svgd import SVGD

    start = np.random.default_rng(0).normal(size=(13, 3))
    key = jax.random.key(1)
    h = 1.3

    def normal(x: jax.Array) -> jax.Array:
        return -0.5 * jnp.sum(x**2)

    def distance(found: np.ndarray, expected: np.ndarray) -> float:
        return float(np.max(np.abs(found - expected)))

    # Two particles on N(0, 1) settle at +-a with a^2 = h/4 log(1 + 4/h).
    pair = SVGD(normal, bandwidth=h, optimizer=optax.sgd(1.0))
    settled = pair.run(key, 2, 50, np.array([[0.3], [0.9]])).particles
    a = math.sqrt(h / 4 * math.log(1 + 4 / h))
    found = {"two particles settle": distance(np.sort(settled[:, 0]), np.array([-a, a]))}

    # Without scores, two particles far from the others move apart: a negative speed.
    apart = start + np.array([8.0, 0, 0]) * (np.arange(13)[:, None] < 2)
    apart[1] = apart[0] + np.array([0.5, 0, 0])
    repulsion = SVGD(lambda x: 0 * jnp.sum(x), bandwidth=h).direction(apart).phi
    found["repulsion"] = distance(repulsion, dense(apart, 0 * apart, h))
    found["closing speed"] = max(0.0, 0.01 + float(repulsion[0, 0] - repulsion[1, 0]))

    # A whole run is that of the definition; each particle lies on one device, though no number of devices divides 13.
    sampler = SVGD(normal, optimizer=optax.adam(0.1))
    found["run"] = distance(sampler.run(key, 13, 25, start).particles, adam(start, 25, 0.1))
    held = sorted(number for holding in sampler.placement(13) for number in holding.particles)
    found["misplaced particles"] = float(held != list(range(13)))

    # With the kernel x.y + 1, mean and covariance of a Gaussian come out exactly (Liu and Wang 2018).
    mean, covariance = np.array([0.5, -1.0]), np.array([[1.2, 0.3], [0.3, 0.8]])
    precision = np.linalg.inv(covariance)
    linear = SVGD(lambda x: -0.5 * (x - mean) @ precision @ (x - mean), kernel="linear", optimizer=optax.sgd(0.3))
    moments = linear.run(key, 7, 120, start[:7, :2]).particles
    found["linear kernel, mean"] = distance(moments.mean(axis=0), mean)
    found["linear kernel, covariance"] = distance(np.cov(moments.T, bias=True), covariance)
    return found


def attract() -> None:
    """Turn the repulsion around, as the existing software has it."""
    from srunbook.svgd import kernel

    right = kernel.rbf_direction

    def wrong(centred, scores, h, layout, everyone):
        return right(centred, scores, h, layout, everyone) - 2 * right(centred, 0 * scores, h, layout, everyone)

    kernel.rbf_direction = wrong


def main() -> None:
    """Print one line of JSON."""
    from srunbook import initialize_distributed

    with initialize_distributed(timeout=600):
        import jax

        jax.config.update("jax_enable_x64", True)
        if sys.argv[1] == "wrong-sign":
            attract()
        sys.stdout.write("oracle " + json.dumps(errors()) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
