"""Two rates of a population from simulated genealogies: particles beside the exact posterior.

    python coalescent_posterior.py
    srunbook simulate --nodes 2 -- python coalescent_posterior.py

The model is that of slurm_multinode_example.py. The genealogies are simulated here with NumPy, event by event,
and the exact posterior is a sum over a grid of closed forms: neither uses any code of srunbook.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from pathlib import Path

import jax
import numpy as np
import optax
from slurm_multinode_example import SAMPLES, log_likelihood, log_prior

from srunbook import initialize_distributed
from srunbook.svgd import SVGD

RATE, MUTATION = 2.0, 3.0  # of joining for each pair of lineages, and of mutation for each lineage
LOCI = 12
LINEAGES = np.arange(SAMPLES, 1, -1)
PAIRS = LINEAGES * (LINEAGES - 1) / 2


# [simulate]
def simulate(random: np.random.Generator, rate: float, mutation: float) -> tuple[np.ndarray, np.ndarray]:
    """Simulate heights of some genealogies, and 1 + numbers of mutations on others.

    With k lineages the next two join after an exponential time; each lineage mutates meanwhile.
    """
    waits = random.exponential(1 / (rate * PAIRS), (2, LOCI, len(PAIRS)))
    heights = waits[0].sum(axis=1)
    counts = random.poisson(mutation * (waits[1] @ LINEAGES))
    return heights.astype(np.float32), 1 + counts


# [/simulate]


# [exact]
def exact_posterior(heights: np.ndarray, counts: np.ndarray, points: int = 161) -> tuple[np.ndarray, ...]:
    """Return logarithms of both rates along the sides of a grid, and the probability of each of its points."""
    logs_of_rate, logs_of_mutation = np.linspace(-0.8, 2.2, points), np.linspace(-0.4, 2.6, points)
    rate, mutation = np.exp(np.meshgrid(logs_of_rate, logs_of_mutation, indexing="ij"))
    logs = -(np.log(rate) ** 2 + np.log(mutation) ** 2) / 8  # the prior

    # A height is a sum of exponential times whose rates differ.
    weights = [np.prod([other / (other - one) for other in PAIRS if other != one]) for one in PAIRS]
    for height in heights.astype(float):
        logs += np.log(sum(w * p * rate * np.exp(-p * rate * height) for w, p in zip(weights, PAIRS, strict=True)))

    # While there are k lineages, a geometric number of mutations comes before the next two join.
    chances = np.zeros((counts.max(), points, points))
    chances[0] = 1
    for k in LINEAGES:
        joins = (k - 1) / (k - 1 + 2 * mutation / rate)
        chances[0] *= joins
        for number in range(1, len(chances)):
            chances[number] = joins * chances[number] + (1 - joins) * chances[number - 1]
    logs += np.log(chances[counts - 1]).sum(axis=0)

    probabilities = np.exp(logs - logs.max())
    return logs_of_rate, logs_of_mutation, probabilities / probabilities.sum()


# [/exact]


def compare(particles: np.ndarray, heights: np.ndarray, counts: np.ndarray) -> None:
    """Print mean and standard deviation of both rates, of the particles and exactly."""
    *sides, probabilities = exact_posterior(heights, counts)
    for axis, name in enumerate(("rate", "mutation")):
        found, side = np.exp(particles[:, axis].astype(float)), np.exp(sides[axis])
        shares = probabilities.sum(axis=1 - axis)
        mean = shares @ side
        deviation = np.sqrt(shares @ (side - mean) ** 2)
        print(f"{name:8}  mean {found.mean():.3f}  exact {mean:.3f}  {100 * (found.mean() / mean - 1):+.1f} %")
        print(f"{name:8}  sd   {found.std():.3f}  exact {deviation:.3f}  {100 * (found.std() / deviation - 1):+.1f} %")


def main() -> None:
    parser = argparse.ArgumentParser(
        description="SVGD for a coalescent model, beside its exact posterior.", allow_abbrev=False
    )
    parser.add_argument("--particles", type=int, default=200)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--output", type=Path, help="a .npz file for particles and observations")
    options = parser.parse_args()
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)  # now, not after the last step
    heights, counts = simulate(np.random.default_rng(2), RATE, MUTATION)

    with initialize_distributed() as info:
        rank, host = f"rank {info.process_id}/{info.num_processes}", os.environ.get("SLURMD_NODENAME", "localhost")
        print(f"{rank} start host={host} device={jax.default_backend()} framework=jax-{jax.__version__}", flush=True)
        sampler = SVGD(
            log_prior,
            dim=2,
            log_likelihood=log_likelihood,
            data=(heights, counts),
            optimizer=optax.adam(optax.cosine_decay_schedule(0.1, options.steps)),  # so that it ends at rest
        )
        result = sampler.run(jax.random.key(0), options.particles, options.steps)
        if info.is_coordinator:
            compare(result.particles, heights, counts)
            if options.output:
                beside = options.output.with_suffix(".tmp.npz")
                np.savez(beside, particles=result.particles, heights=heights, counts=counts)
                beside.replace(options.output.with_suffix(".npz"))
        params = hashlib.sha256(result.particles.tobytes()).hexdigest()[:12]
        print(f"{rank} end steps={result.steps} params={params}", flush=True)


if __name__ == "__main__":
    main()
