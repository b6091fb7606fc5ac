"""SVGD's posteriors with 200 particles beside the exact ones, in one and two dimensions and both precisions."""

from __future__ import annotations

import math

import pytest

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import scipy.special  # noqa: E402
import scipy.stats  # noqa: E402

from srunbook import phase_type  # noqa: E402
from srunbook.svgd import SVGD  # noqa: E402

PARTICLES, STEPS = 200, 150
SHARE = 0.05


@pytest.fixture(params=["float32", pytest.param("float64", marks=pytest.mark.full)])
def kind(request):
    """Return one of the precisions, which JAX computes in meanwhile."""
    jax.config.update("jax_enable_x64", request.param == "float64")
    yield request.param
    jax.config.update("jax_enable_x64", False)


def particles_of(log_prior, log_likelihood, data, dim, kind):
    """Particles at rest."""
    optimizer = optax.adam(optax.cosine_decay_schedule(0.15, STEPS))
    sampler = SVGD(log_prior, data=data, log_likelihood=log_likelihood, optimizer=optimizer)
    start = 0.5 * np.random.default_rng(0).normal(size=(PARTICLES, dim)).astype(kind)
    particles = sampler.run(jax.random.key(0), PARTICLES, STEPS, start).particles
    assert particles.dtype == kind
    return particles


@pytest.mark.full
def test_erlang_posterior(kind):
    """The rate of Erlang times with a gamma prior has its conjugate posterior within 5 %."""
    shape, a, b = 3, 2.0, 1.0
    times = np.random.default_rng(1).gamma(shape, 0.5, 12).astype(kind)
    posterior = scipy.stats.gamma(a + 12 * shape, scale=1 / (b + float(times.sum())))

    def log_prior(x):  # of the logarithm of the rate, hence a and not a - 1
        return a * x[0] - b * jnp.exp(x[0])

    def log_likelihood(x, times):
        return phase_type.erlang(shape, jnp.exp(x[0])).log_prob(times).sum()

    rates = np.exp(particles_of(log_prior, log_likelihood, times, 1, kind))

    assert rates.mean() == pytest.approx(posterior.mean(), rel=SHARE)
    assert rates.std() == pytest.approx(posterior.std(), rel=SHARE)


def test_two_erlang_rates(kind):
    """A rate and how many times another is larger, which depend on each other, have their posterior within 5 %."""
    shapes, a, b = (2, 3), (2.0, 3.0), (1.0, 0.5)
    random = np.random.default_rng(1)
    times = np.stack([random.gamma(shapes[0], 0.5, 12), random.gamma(shapes[1], 0.25, 12)], axis=1).astype(kind)
    posteriors = [
        scipy.stats.gamma(a[one] + 12 * shapes[one], scale=1 / (b[one] + float(times[:, one].sum()))) for one in (0, 1)
    ]

    def logs(x):
        return x[0], x[0] + x[1]

    def log_prior(x):
        return sum(a[one] * log - b[one] * jnp.exp(log) for one, log in enumerate(logs(x)))

    def log_likelihood(x, times):
        return sum(
            phase_type.erlang(shapes[one], jnp.exp(log)).log_prob(times[:, one]).sum()
            for one, log in enumerate(logs(x))
        )

    particles = particles_of(log_prior, log_likelihood, times, 2, kind)

    for one, log in enumerate(logs(particles.T.astype(float))):
        assert np.exp(log).mean() == pytest.approx(posteriors[one].mean(), rel=SHARE)
        assert np.exp(log).std() == pytest.approx(posteriors[one].std(), rel=SHARE)
    # of the logarithms of two independent gamma variables, x[0] and the difference of both
    first, second = (scipy.special.polygamma(1, a[one] + 12 * shapes[one]) for one in (0, 1))
    correlation = -math.sqrt(first / (first + second))
    assert np.corrcoef(particles.T)[0, 1] == pytest.approx(correlation, rel=SHARE)


@pytest.mark.full
def test_coalescent_posterior(kind):
    """The rate at which lineages join, from heights of genealogies, has its exact posterior within 5 %."""
    pairs = np.array([6.0, 3.0, 1.0])
    heights = np.random.default_rng(2).exponential(1 / (1.5 * pairs), (10, 3)).sum(axis=1).astype(kind)

    def log_prior(x):
        return -0.5 * x[0] ** 2

    def log_likelihood(x, heights):
        return phase_type.coalescent_height(4, jnp.exp(x[0])).log_prob(heights).sum()

    rates = np.exp(particles_of(log_prior, log_likelihood, heights, 1, kind))

    grid = np.linspace(-2, 3, 2001)
    weights = [np.prod([other / (other - one) for other in pairs if other != one]) for one in pairs]
    densities = sum(
        w * p * np.exp(grid) * np.exp(-p * np.exp(grid) * heights[:, None].astype(float))
        for w, p in zip(weights, pairs, strict=True)
    )
    logs = np.log(densities).sum(axis=0) - 0.5 * grid**2
    shares = np.exp(logs - logs.max())
    shares /= shares.sum()
    mean = shares @ np.exp(grid)
    assert rates.mean() == pytest.approx(mean, rel=SHARE)
    assert rates.std() == pytest.approx(math.sqrt(shares @ (np.exp(grid) - mean) ** 2), rel=SHARE)
