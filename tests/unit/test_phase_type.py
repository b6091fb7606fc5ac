"""Phase-type distributions against closed forms, matrix exponentials and each other, in both precisions."""

from __future__ import annotations

import ctypes
import math
import sys

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import psutil  # noqa: E402
import scipy.linalg  # noqa: E402
import scipy.stats  # noqa: E402

from srunbook import phase_type  # noqa: E402

MOST_MEMORY = 2**30
"""Bytes of this process beyond which what JAX compiled is let go: that of all tests together takes 3 GB."""


@pytest.fixture(autouse=True)
def little_memory():
    """Let go of what JAX compiled where it takes too much."""
    yield
    if psutil.Process().memory_info().rss > MOST_MEMORY:
        jax.clear_caches()
        if sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)  # glibc keeps what was freed in small pieces


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
    """Density and distribution function are those of the matrix exponential."""
    initial, rates, exits = random_chain(states)
    chain = phase_type.Continuous(jnp.asarray(initial), jnp.asarray(rates))
    powers = [initial @ scipy.linalg.expm(rates * time) for time in TIMES]

    close(chain.log_prob(TIMES), [np.log(row @ exits) for row in powers], 10)
    close(chain.cdf(TIMES), [1 - row.sum() for row in powers])


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


def test_gradient_at_time_zero(close):
    """At time 0 the gradient for the time is finite, and that of the closed form."""
    close(jax.grad(lambda time: phase_type.exponential(3.0).log_prob(time))(0.0), -3.0)


@pytest.mark.parametrize("rate", [0.01, 300.0])
def test_exponential(close, rate):
    """The exponential time has its closed forms, far out in its tail, too."""
    times = np.array([0.0, 0.5, 1.0, 3.0, 50.0]) / rate
    chain = phase_type.exponential(rate)

    close(chain.log_prob(times), np.log(rate) - rate * times)
    close(chain.log_survival(times), -rate * times)
    close(chain.moment(3), 6 / rate**3)


@pytest.mark.parametrize("shape", [2, 200])
def test_erlang(close, shape):
    """The Erlang time is the gamma distribution; where its density underflows, its logarithm does not."""
    times = np.array([0.1, 1.0, 5.0, 150.0, 900.0])
    chain = phase_type.erlang(shape, 1.5)
    gamma = scipy.stats.gamma(shape, scale=1 / 1.5)

    close(chain.log_prob(times), gamma.logpdf(times), 10)
    close(chain.cdf(times), gamma.cdf(times), 10)
    close(chain.mean(), gamma.mean(), 5)
    close(chain.variance(), gamma.var(), 300)


@pytest.mark.parametrize("shape", [pytest.param(2, marks=pytest.mark.full), 200])
def test_erlang_alone_at_a_short_time(close, shape):
    """A time so short that few jumps are likely needs as many terms as there are states, also where it stands alone."""
    time = 0.1
    chain, gamma = phase_type.erlang(shape, 1.5), scipy.stats.gamma(shape, scale=1 / 1.5)
    shares = np.cumprod(1.5 * time / (shape + np.arange(1, 20)))  # of the series of the lower incomplete gamma function
    log_cdf = gamma.logpdf(time) + math.log(time / shape * (1 + shares.sum()))

    close(chain.log_prob(time), gamma.logpdf(time), 3)
    close(chain.log_cdf(time), log_cdf, 3)
    close(jax.grad(lambda rate: phase_type.erlang(shape, rate).log_prob(time))(1.5), shape / 1.5 - time, 30)


@pytest.mark.parametrize("shape", [pytest.param(3, marks=pytest.mark.full), 200])
def test_score_of_erlang(close, shape):
    """The gradient of the log likelihood for the rate is N k / rate - sum t, however unlikely the data are."""
    times = jnp.array([shape * 0.75, float(shape), 1.0, 2.0, 3.0])
    score = jax.grad(lambda rate: phase_type.erlang(shape, rate).log_prob(times).sum())(1.25)

    close(score, 5 * shape / 1.25 - float(times.sum()), 30)


def test_hypoexponential(close):
    """With rates that differ, the density is the weighted sum of exponential ones."""
    rates = np.array([1.0, 2.0, 5.0, 7.0])
    times = np.array([0.0, 0.2, 1.0, 4.0, 9.0])
    weights = [np.prod([other / (other - rate) for other in rates if other != rate]) for rate in rates]
    expected = sum(w * rate * np.exp(-rate * times) for w, rate in zip(weights, rates, strict=True))

    close(phase_type.hypoexponential(rates).prob(times), expected, 5)


@pytest.mark.parametrize("samples", [pytest.param(5, marks=pytest.mark.full), 40])
def test_length_of_genealogies(close, samples):
    """P(L <= t) = (1 - exp(-t/2))^(n-1) for the total length of a genealogy, also with 40 samples."""
    times = np.array([0.5, 2.0, 6.0, 10.0, 15.0])

    close(phase_type.coalescent_length(samples).cdf(times), (1 - np.exp(-times / 2)) ** (samples - 1), 2)


@pytest.mark.parametrize("samples", [20, pytest.param(40, marks=pytest.mark.full)])
def test_shortest_genealogies(close, samples):
    """Where P(L <= t) is tiny, every digit of it is right, and so is its gradient for the rate; the upper end as well.

    Here the limit is relative alone: of 20 samples P(L <= 0.5) is 4e-13.
    """
    times = np.array([0.01, 0.5, 2.0, 6.0, 15.0])
    chain = phase_type.coalescent_length(samples)
    expected = (samples - 1) * np.log1p(-np.exp(-times / 2))
    found = chain.log_cdf(times)
    limit = {"float32": 3e-5, "float64": 1e-12}[str(found.dtype)]
    visible = expected > -80  # float32 ends there

    np.testing.assert_allclose(found, expected, rtol=limit)
    np.testing.assert_allclose(chain.cdf(times)[visible], np.exp(expected)[visible], rtol=3 * limit)
    scores = jax.vmap(jax.grad(lambda rate, time: phase_type.coalescent_length(samples, rate).log_cdf(time)), (None, 0))
    exact = (samples - 1) * (times / 2) / np.expm1(times / 2)
    np.testing.assert_allclose(scores(1.0, jnp.asarray(times)), exact, rtol=3 * limit)


def test_fewest_steps(close):
    """In discrete time, too, a tiny probability of an early end keeps its digits: four successes, each one of 1024."""
    chance, numbers = 1 / 1024, np.array([4, 5, 50, 1000, 3000])
    steps = (1 - chance) * np.eye(4) + chance * np.eye(4, k=1)
    chain = phase_type.Discrete(jnp.array([1.0, 0, 0, 0]), jnp.asarray(steps))
    expected = scipy.stats.nbinom(4, chance).logcdf(numbers - 4)
    found = chain.log_cdf(numbers)

    np.testing.assert_allclose(found, expected, rtol=3e-5 if found.dtype == np.float32 else 1e-11)
    close(chain.cdf(numbers), np.exp(expected), 5)
    assert (np.asarray(chain.log_cdf(np.array([0.0, -1.0]))) == -math.inf).all()


@pytest.mark.parametrize("samples", [5, pytest.param(40, marks=pytest.mark.full)])
def test_height_of_genealogies(close, samples):
    """Mean and variance of the height are 2 (1 - 1/n) and sum of 4 / (k (k-1))^2."""
    chain = phase_type.coalescent_height(samples)

    close(chain.mean(), 2 * (1 - 1 / samples))
    close(chain.variance(), sum(4 / (k * (k - 1)) ** 2 for k in range(2, samples + 1)), 5)


def test_rewards(close):
    """With the number of lineages as reward, the height becomes the length; states without it are passed."""
    height = phase_type.coalescent_height(5)
    length = phase_type.coalescent_length(5)
    times = np.array([0.1, 0.5, 2.0, 4.0, 6.0])

    close(height.rewarded([5, 4, 3, 2]).log_prob(times), length.log_prob(times), 3)
    close(height.rewarded([0, 1, 0, 0]).log_prob(times), np.log(6) - 6 * times)
    initial, rates, _ = random_chain(4)
    kept = phase_type.Continuous(jnp.asarray(initial), jnp.asarray(rates)).rewarded([1, 1, 1, 1])
    close(kept.rates, rates)


@pytest.mark.parametrize("samples", [5, pytest.param(12, marks=pytest.mark.full)])
def test_segregating_sites(close, samples):
    """The number of mutations is the sum of geometric numbers with (k-1) / (k-1+theta), and the alternating sum."""
    theta, most = 2.0, 59
    expected = np.zeros(most)
    expected[0] = 1
    for k in range(2, samples + 1):
        success = (k - 1) / (k - 1 + theta)
        expected = np.convolve(expected, success * (1 - success) ** np.arange(most))[:most]
    found = phase_type.segregating_sites(samples, theta).prob(np.arange(1, most + 1))

    close(found, expected, 5)
    # Tavare (1984): an alternating sum, which loses its digits for many samples
    if samples == 5:
        numbers = np.arange(most)
        alternating = sum(
            (-1) ** k * math.comb(samples - 1, k - 1) * (k - 1) / (theta + k - 1) * (theta / (theta + k - 1)) ** numbers
            for k in range(2, samples + 1)
        )
        close(found, alternating, 20)


def test_geometric(close):
    """The geometric number has its closed forms and score."""
    numbers = np.array([1, 2, 7, 20, 40])
    chain = phase_type.geometric(0.3)

    close(chain.log_prob(numbers), np.log(0.3) + (numbers - 1) * np.log(0.7))
    close(chain.cdf(numbers), 1 - 0.7**numbers)
    close(chain.mean(), 1 / 0.3)
    close(chain.variance(), 0.7 / 0.09)
    score = jax.grad(lambda p: phase_type.geometric(p).log_prob(jnp.asarray(numbers)).sum())(0.3)
    close(score, 5 / 0.3 - (numbers.sum() - 5) / 0.7, 3)


def test_discrete_chain(close):
    """Probabilities and tails of a chain in discrete time are those of matrix powers, and sum to 1."""
    random = np.random.default_rng(1)
    steps = random.dirichlet(np.ones(5), 4)[:, :4]
    initial = random.dirichlet(np.ones(4))
    chain = phase_type.Discrete(jnp.asarray(initial), jnp.asarray(steps))
    rows = [initial @ np.linalg.matrix_power(steps, k) for k in range(60)]

    close(chain.prob(np.arange(1, 60)), [row @ (1 - steps.sum(1)) for row in rows[:-1]], 5)
    close(jnp.exp(chain.log_survival(np.arange(60))), [row.sum() for row in rows], 5)
    numbers = np.arange(1, 400)
    close(chain.factorial_moment(2), np.sum(numbers * (numbers - 1) * np.asarray(chain.prob(numbers))), 50)


def test_outside_of_the_support(close):
    """Times before 0, and numbers of steps that are no whole number of 1 or more, have no density."""
    assert phase_type.exponential(1.0).log_prob(-1.0) == -math.inf
    close(phase_type.exponential(1.0).cdf(-1.0), 0.0)
    assert (np.asarray(phase_type.geometric(0.5).log_prob(np.array([0.0, 1.5, -1.0]))) == -math.inf).all()


def test_too_many_terms():
    """A rate times a time that would need more terms than allowed gives NaN and no endless loop."""
    assert math.isnan(phase_type.exponential(1e9).log_prob(1.0))


@BOTH
@pytest.mark.parametrize("theta", [1e-3, pytest.param(167.0, marks=pytest.mark.full), 1e5])
def test_ends_smaller_than_rounding(close, theta):
    """No segregating site at all: the probability, product of k / (k + theta), and its score keep their digits."""

    def log_prob(theta):
        return phase_type.segregating_sites(5, theta).log_prob(1.0)

    k = np.arange(1.0, 5)
    for function in (log_prob, jax.jit(log_prob)):
        close(function(theta), np.log(k / (k + theta)).sum(), 5)
        close(jax.grad(function)(theta), -(1 / (k + theta)).sum(), 5)
    close(jnp.exp(phase_type.geometric(theta * 1e-12).log_prob(1.0)) / (theta * 1e-12), 1.0, 5)


def test_rounding_of_compiled_rates():
    """Compiled, a rate divided by itself may not be 1: the scores of many rates are all finite, and near the exact."""
    times = jnp.array([0.2, 1.0, 2.7])
    rates = jnp.exp(jnp.linspace(-1, 2, 20000))
    scores = jax.jit(jax.vmap(jax.grad(lambda rate: phase_type.erlang(3, rate).log_prob(times).sum())))(rates)

    np.testing.assert_allclose(scores, 9 / rates - 3.9, atol=1e-3)


def test_vmap_and_jit(close):
    """Under vmap and jit each element gets what it gets alone."""
    rates = jnp.array([0.5, 30.0])
    times = jnp.array([0.1, 0.5, 1.0, 2.0, 3.0])

    def log_likelihood(rate):
        return phase_type.coalescent_height(5, rate).log_prob(times).sum()

    together = jax.jit(jax.vmap(jax.value_and_grad(log_likelihood)))(rates)
    alone = [jax.value_and_grad(log_likelihood)(rate) for rate in rates]
    close(together[0], [value for value, _ in alone], 5)
    close(together[1], [score for _, score in alone], 5)


def test_samples():
    """Samples have the distribution: Kolmogorov and Smirnov find no difference, and a wrong rate is found."""
    key = jax.random.key(0)
    chain = phase_type.coalescent_height(5)
    times = np.asarray(chain.sample(key, (2000,)))

    assert scipy.stats.kstest(times, lambda t: np.asarray(chain.cdf(t))).pvalue > 1e-3
    other = phase_type.coalescent_height(5, 1.2)
    assert scipy.stats.kstest(times, lambda t: np.asarray(other.cdf(t))).pvalue < 1e-3
    counts = np.asarray(phase_type.segregating_sites(5, 2.0).sample(key, (4000,)))
    assert abs(counts.mean() - 1 - 2 * sum(1 / k for k in range(1, 5))) < 5 * counts.std() / 4000**0.5


def chain_of(initial, matrix, kind=phase_type.Continuous):
    """Return a chain of lists, which is not made yet."""
    return lambda: kind(jnp.array(initial, float), jnp.array(matrix, float))


def ending_with(ends):
    """Return a chain in steps with these probabilities of absorption, which is not made yet."""
    return lambda: phase_type.Discrete(jnp.array([1.0, 0]), jnp.array([[0.5, 0.3], [0, 0.9]]), jnp.array(ends))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: phase_type.Continuous(jnp.ones(2), jnp.ones((3, 3))), r"\(2,\).*\(3, 3\)"),
        (lambda: phase_type.Discrete(jnp.ones(2), jnp.ones(2)), r"needed are \(m,\) and \(m, m\)"),
        (chain_of([0.5, 1.0], [[-1, 0], [0, -1]]), r"initial sums to 1\.5; .* sum 1, as in \[1\.0, 0\.0\]"),
        (chain_of([1.5, -0.5], [[-1, 0], [0, -1]]), r"initial has -0\.5 at 1; it has probabilities of 0 or more"),
        (chain_of([math.nan, 1], [[-1, 0], [0, -1]]), r"initial has nan at 0"),
        (chain_of([1, 0], [[-1, -0.5], [0, -1]]), r"rates has -0\.5 at \(0, 1\); rates between states are 0 or more"),
        (chain_of([1, 0], [[-1, math.inf], [0, -1]]), r"rates has inf at \(0, 1\)"),
        (chain_of([1, 0], [[-1, 1], [0, 0]]), r"rates has 0 at \(1, 1\); on the diagonal it has minus the rate"),
        (chain_of([1, 0], [[-1, 2], [0, -1]]), r"row 0 of rates sums to 1; each row sums to 0 or less"),
        (chain_of([1, 0], [[0.5, -0.1], [0, 0.5]], phase_type.Discrete), r"steps has -0\.1 at \(0, 1\)"),
        (chain_of([1, 0], [[0.5, 0.3], [0.5, 0.9]], phase_type.Discrete), r"row 1 of steps sums to 1\.4; .* 1 or less"),
        (chain_of([0.5, 0], [[0.5, 0.3], [0, 0.9]], phase_type.Discrete), r"initial sums to 0\.5"),
        (ending_with([0.2]), r"ends has the shape \(1,\); needed is \(2,\), one for each state"),
        (ending_with([0.2, 0.5]), r"ends has 0\.5 at 1, and its row of steps sums to 0\.9; .* ends=\[0\.2, 0\.1\]"),
        (ending_with([math.nan, 0.1]), r"ends has nan at 0"),
        (lambda: phase_type.exponential(-1.0), r"rate=-1: it is larger than 0, as in exponential\(2\.0\)"),
        (lambda: phase_type.exponential(math.inf), r"rate=inf"),
        (lambda: phase_type.erlang(2, 0.0), r"rate=0: .*erlang\(3, 2\.0\)"),
        (lambda: phase_type.erlang(0, 1.0), r"shape=0.*erlang\(3, 2\.0\)"),
        (lambda: phase_type.hypoexponential([1.0, -2.0]), r"rate=-2: .*hypoexponential\(\[1\.0, 2\.0\]\)"),
        (lambda: phase_type.hypoexponential(1.0), r"rates have the shape \(\); needed is \(m,\)"),
        (lambda: phase_type.hypoexponential([]), r"rates have the shape \(0,\)"),
        (lambda: phase_type.geometric(1.5), r"probability=1\.5: it is larger than 0 and 1 at most, as in geometric\("),
        (lambda: phase_type.geometric(0.0), r"probability=0: "),
        (lambda: phase_type.coalescent_height(1), r"samples=1.*2 samples or more"),
        (lambda: phase_type.coalescent_height(3, -1.0), r"rate=-1: .*coalescent_height\(10, 2\.0\)"),
        (lambda: phase_type.coalescent_length(3, math.nan), r"rate=nan: .*coalescent_length\(10, 2\.0\)"),
        (lambda: phase_type.segregating_sites(3, 0.0), r"theta=0: .*segregating_sites\(10, 2\.0\)"),
        (lambda: phase_type.coalescent_height(3).poisson_count(-2.0), r"rate=-2: .*poisson_count\(1\.5\)"),
        (lambda: phase_type.coalescent_height(3).rewarded([1]), r"rewards=\[1\]: needs 2 numbers"),
        (lambda: phase_type.coalescent_height(3).rewarded([-1, 1]), r"0 or more"),
        (
            lambda: phase_type.Continuous(jnp.array([0.5, 0.5]), -jnp.eye(2)).rewarded([1, 0]),
            r"with probability 0\.5 none is earned",
        ),
    ],
)
def test_refused(make, message):
    """Shapes, probabilities and rates of no phase-type distribution are refused with what was found and is needed."""
    with pytest.raises(ValueError, match=message):
        make()


def test_traced_values_are_not_looked_at():
    """Under jit, grad and vmap the same values make distributions, which may be passed in and out."""
    rates = jnp.array([1.0, -1.0])
    together = jax.vmap(phase_type.exponential)(rates)
    first = jax.jit(lambda chain: chain.mean())(phase_type.exponential(4.0))

    of_chain = jax.grad(lambda chain: chain.log_prob(1.0))(phase_type.exponential(2.0))

    assert together.rates.shape == (2, 1, 1)
    assert float(of_chain.rates[0, 0]) == pytest.approx(-0.5 + 1.0)  # log density log(-T) + T t
    assert float(first) == pytest.approx(0.25)
    assert jax.jit(lambda p: phase_type.geometric(p).prob(2))(1.5).shape == ()
    assert np.isfinite(jax.grad(lambda rate: phase_type.erlang(2, rate).log_prob(1.0))(3.0))


@pytest.mark.parametrize(
    ("samples", "theta"),
    [(50, 1e3), *(pytest.param(*each, marks=pytest.mark.full) for each in ((2, 1e-3), (50, 1e-3)))],
)
def test_rounding_is_not_refused(samples, theta):
    """What inverting and multiplying in float32 leaves of probabilities is taken for them."""
    count = phase_type.segregating_sites(samples, theta)
    rewarded = phase_type.coalescent_height(samples, theta).rewarded(list(range(samples, 1, -1)))

    assert float(count.mean()) == pytest.approx(1 + theta * sum(1 / k for k in range(1, samples)), rel=1e-3)
    assert float(rewarded.mean()) == pytest.approx(2 / theta * sum(1 / k for k in range(1, samples)), rel=1e-3)
