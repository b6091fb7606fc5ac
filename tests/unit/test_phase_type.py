"""Phase-type distributions against closed forms, matrix exponentials and each other, in both precisions."""

from __future__ import annotations

import math

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import scipy.linalg  # noqa: E402
import scipy.stats  # noqa: E402

from srunbook import phase_type  # noqa: E402

BOTH = pytest.mark.parametrize("close", ["float32", "float64"], indirect=True)
"""In both precisions also without `--full`: where rounding decides."""


@pytest.fixture(params=[pytest.param("float32", marks=pytest.mark.full), "float64"])
def close(request):
    """Compare numbers in one of the precisions, which JAX computes in meanwhile."""
    jax.config.update("jax_enable_x64", request.param == "float64")
    relative = {"float32": 2e-5, "float64": 1e-12}[request.param]

    def compare(found, expected, times=1.0):
        found = np.asarray(found)
        assert found.dtype == request.param
        np.testing.assert_allclose(found, expected, rtol=times * relative, atol=times * relative)

    yield compare
    jax.config.update("jax_enable_x64", False)


def random_chain(states, seed=0):
    """Draw initial probabilities and rates of a random chain in continuous time."""
    random = np.random.default_rng(seed)
    rates = random.uniform(0, 1, (states, states))
    np.fill_diagonal(rates, 0)
    exits = random.uniform(0.05, 1, states)
    return random.dirichlet(np.ones(states)), rates - np.diag(rates.sum(1) + exits), exits


TIMES = np.array([0.0, 0.01, 0.5, 2.0, 10.0])


@BOTH
@pytest.mark.parametrize("states", [1, 50])
def test_matrix_exponential(close, states):
    """The density is that of the matrix exponential."""
    initial, rates, exits = random_chain(states)
    chain = phase_type.Continuous(jnp.asarray(initial), jnp.asarray(rates))
    powers = [initial @ scipy.linalg.expm(rates * time) for time in TIMES]

    close(chain.log_prob(TIMES), [np.log(row @ exits) for row in powers], 10)


def test_gradients(close):
    """Gradients for initial probabilities, rates and times are differences of what the matrix exponential gives."""
    initial, rates, _ = random_chain(4)
    places = [initial, rates, TIMES[1:]]
    random = np.random.default_rng(2)

    def log_densities(a, matrix, times):
        return sum(np.log(a @ scipy.linalg.expm(matrix * time) @ -matrix.sum(1)) for time in times)

    def with_series(initial, rates, times):
        return phase_type.Continuous(initial, rates).log_prob(times).sum()

    gradients = jax.grad(with_series, (0, 1, 2))(*map(jnp.asarray, places))
    for number, gradient in enumerate(gradients):
        way = random.normal(size=gradient.shape) * 1e-5
        ahead, behind = (
            log_densities(*places[:number], places[number] + side * way, *places[number + 1 :]) for side in (1, -1)
        )
        limit = 1e-7 if gradient.dtype == np.float64 else 1e-4
        assert np.sum(np.asarray(gradient, float) * way) == pytest.approx((ahead - behind) / 2, rel=limit)


@pytest.mark.parametrize("shape", [2, 200])
def test_erlang(close, shape):
    """The Erlang time is the gamma distribution; where its density underflows, its logarithm does not."""
    times = np.array([0.1, 1.0, 5.0, 150.0, 900.0])
    chain = phase_type.erlang(shape, 1.5)
    gamma = scipy.stats.gamma(shape, scale=1 / 1.5)

    close(chain.log_prob(times), gamma.logpdf(times), 10)
    close(chain.mean(), gamma.mean(), 5)


def test_genealogies(close):
    """The height has the mean 2 (1 - 1/n), and the length the density of P(L <= t) = (1 - exp(-t/2))^(n-1)."""
    times = np.array([0.5, 2.0, 6.0, 10.0, 15.0])
    densities = 4 / 2 * np.exp(-times / 2) * (1 - np.exp(-times / 2)) ** 3

    close(phase_type.coalescent_height(5).mean(), 2 * (1 - 1 / 5))
    close(phase_type.coalescent_length(5).prob(times), densities, 5)


@pytest.mark.parametrize("samples", [5, 12])
def test_segregating_sites(close, samples):
    """The number of mutations is the sum of geometric numbers with (k-1) / (k-1+theta)."""
    theta, most = 2.0, 59
    expected = np.zeros(most)
    expected[0] = 1
    for k in range(2, samples + 1):
        success = (k - 1) / (k - 1 + theta)
        expected = np.convolve(expected, success * (1 - success) ** np.arange(most))[:most]
    found = phase_type.segregating_sites(samples, theta).prob(np.arange(1, most + 1))

    close(found, expected, 5)


def test_discrete_chain(close):
    """Probabilities of a chain in discrete time are those of matrix powers, and give its mean."""
    random = np.random.default_rng(1)
    steps = random.dirichlet(np.ones(5), 4)[:, :4]
    initial = random.dirichlet(np.ones(4))
    chain = phase_type.Discrete(jnp.asarray(initial), jnp.asarray(steps))
    rows = [initial @ np.linalg.matrix_power(steps, k) for k in range(60)]

    close(chain.prob(np.arange(1, 60)), [row @ (1 - steps.sum(1)) for row in rows[:-1]], 5)
    numbers = np.arange(1, 400)
    close(chain.mean(), np.sum(numbers * np.asarray(chain.prob(numbers))), 50)


def test_too_many_terms():
    """A rate times a time that would need more terms than allowed gives NaN and no endless loop."""
    assert math.isnan(phase_type.exponential(1e9).log_prob(1.0))


@BOTH
@pytest.mark.parametrize("theta", [1e-3, 1e5])
def test_ends_smaller_than_rounding(close, theta):
    """No segregating site at all: the probability, product of k / (k + theta), and its score keep their digits."""

    def log_prob(theta):
        return phase_type.segregating_sites(5, theta).log_prob(1.0)

    k = np.arange(1.0, 5)
    for function in (log_prob, jax.jit(log_prob)):
        close(function(theta), np.log(k / (k + theta)).sum(), 5)
        close(jax.grad(function)(theta), -(1 / (k + theta)).sum(), 5)


CONTINUOUS, DISCRETE = phase_type.Continuous, phase_type.Discrete


@pytest.mark.parametrize(
    ("make", "values", "message"),
    [
        (CONTINUOUS, ([1.0, 0], np.ones((3, 3))), r"\(2,\) and \(3, 3\); needed are \(m,\) and \(m, m\)"),
        (CONTINUOUS, ([0.5, 1.0], [[-1.0, 0], [0, -1]]), r"no chain: needed are probabilities with sum 1"),
        (CONTINUOUS, ([1.0, 0], [[-1, -0.5], [0, -1]]), r"rates such as .* sum to 0 or less"),
        (DISCRETE, ([1.0, 0], [[0.5, -0.1], [0, 0.5]]), r"steps such as .* sum to 1 or less"),
        (DISCRETE, ([1.0], [[0.0]], [1.0, 1]), r"ends has the shape \(2,\)"),
        (phase_type.erlang, (0, 1.0), r"rates have the shape \(0,\); needed is \(m,\)"),
    ],
)
def test_rejected(make, values, message):
    """What is no phase-type distribution is rejected with what is needed."""
    with pytest.raises(ValueError, match=message):
        make(*(jnp.asarray(value) if make is not phase_type.erlang else value for value in values))
