"""SVGD where the log density is not a finite number: the run ends, and says which particle, where and when."""

from __future__ import annotations

import math

import pytest

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from srunbook.svgd import SVGD, SVGDError, saved_steps  # noqa: E402
from srunbook.svgd._program import LOOKS  # noqa: E402

KEY = jax.random.key(0)
START = np.array([[0.5], [2.0], [1.0], [0.25]], "float32")


def gamma(x):
    """Compute the log density of Gamma(3, 1), whose gradient is finite below 0, where the density is NaN."""
    return 2 * jnp.log(x[0]) - x[0]


def outside(value):
    """Make a log density that has a value of its own below 0, and finite gradients everywhere."""
    return lambda x: jnp.where(x[0] < 0, value, -(x[0] ** 2))


def test_support_of_a_density():
    """Particles that start outside the support of a density, as half of the default ones may, end the run."""
    with pytest.raises(SVGDError, match=r"^step 1: \d+ of 20 particles have no finite log density.* log density nan"):
        SVGD(gamma, dim=1).run(KEY, 20, 300)


def test_unconstrained():
    """With the logarithm as the parameter, as the error advises, all particles find their places."""
    found = SVGD(lambda u: gamma(jnp.exp(u)) + u[0], dim=1).run(KEY, 20, 300).particles

    assert np.exp(found).mean() == pytest.approx(3, rel=0.05)


@pytest.mark.parametrize("value", [math.nan, -math.inf, math.inf])
def test_value_that_is_not_finite(value):
    """A value that is not finite is refused whatever the gradient is; the particle and its place are named."""
    start = START.copy()
    start[2] = -0.125
    with pytest.raises(SVGDError, match=rf"^step 1: 1 of 4 particles .*particle 2.* \[-0\.125\].* {value}"):
        SVGD(outside(value)).run(KEY, 4, 3, start)


def test_step_and_place_are_those_of_the_failure():
    """The step is the one at which the particle is outside, and its place is the one that it had there."""

    def falling(x):
        return jnp.where(x[0] < 0, jnp.nan, -x[0])

    start = np.array([[100.0], [1.5]], "float32")
    sampler = SVGD(falling, optimizer=optax.sgd(0.5), bandwidth=1.0)
    with pytest.raises(SVGDError, match=r"^step 8: 1 of 2 particles .*particle 1.* \[-0\.25\]"):
        sampler.run(KEY, 2, 50, start)


def test_every_particle_is_looked_at():
    """In the middle of a run each particle in turn is looked at: one of many that leaves the support is found soon."""
    start = np.linspace(1000, 2000, 100, dtype="float32")[:, None]
    for number in (0, 50, 99):
        start_with_one = np.where(np.arange(100)[:, None] == number, np.float32(1.5), start)
        sampler = SVGD(lambda x: jnp.where(x[0] < 0, jnp.nan, -x[0]), optimizer=optax.sgd(50.0), bandwidth=1.0)
        with pytest.raises(SVGDError, match=rf"^step \d+: 1 of 100 particles .*particle {number} at ") as caught:
            sampler.run(KEY, 100, 400, start_with_one)
        assert int(str(caught.value).split()[1].rstrip(":")) <= 5 + LOOKS


def test_minibatch_that_is_not_finite():
    """A log likelihood that is NaN for some rows ends the run at the step that draws them, which the error says."""
    rows = np.arange(8.0, dtype="float32")

    def log_likelihood(x, batch):
        return jnp.where(jnp.any(batch == 3), jnp.nan, 0.0) - 0.5 * jnp.sum((x[0] - batch) ** 2)

    sampler = SVGD(lambda x: -0.5 * x[0] ** 2, data=rows, log_likelihood=log_likelihood, batch_size=1)
    key = jax.random.fold_in(KEY, 2)
    drawn = [float(sampler.settings.target.batch(rows, key, np.int32(step))[0]) for step in range(100)]
    with pytest.raises(SVGDError, match=rf"^step {drawn.index(3.0) + 1}: 4 of 4 particles .* with the rows drawn"):
        sampler.run(KEY, 4, 100, START)


def test_last_step(tmp_path):
    """A particle that the last step carries outside is neither returned nor saved."""
    sampler = SVGD(lambda x: jnp.where(x[0] < 0, jnp.nan, -x[0]), optimizer=optax.sgd(1.0), bandwidth=1.0)
    start = np.array([[100.0], [0.75]], "float32")
    assert sampler.run(KEY, 2, 1, start).steps == 1
    with pytest.raises(SVGDError, match=r"^after step 2: 1 of 2 particles .*particle 1.* \[-0\.25\]"):
        sampler.run(KEY, 2, 2, start, every=1, checkpoint=tmp_path)

    assert saved_steps(tmp_path) == [1]


def test_steps_that_are_not_finite():
    """An optimizer that makes a NaN of every step is named, where particles lose their places."""
    with pytest.raises(SVGDError, match=r"after step 1: .*\[nan\].*optimizer"):
        SVGD(lambda x: -0.5 * x[0] ** 2, optimizer=optax.sgd(math.nan)).run(KEY, 4, 1, START)


def test_places_that_the_density_ignores():
    """Particles at places that are not finite are seen also where the density does not look at them."""
    with pytest.raises(SVGDError, match=r"after step 1: .*\[nan\]"):
        SVGD(lambda x: 0.0 * jnp.where(jnp.isfinite(x[0]), x[0], 0.0), optimizer=optax.sgd(math.nan)).run(
            KEY, 4, 1, START
        )


@pytest.mark.parametrize("call", ["direction", "scores", "ksd"])
def test_other_calls(call):
    """Directions, scores and discrepancies are not computed from densities that are not finite."""
    with pytest.raises(SVGDError, match=r"1 of 4 particles .*particle 3.* \[-1\.\].*log density nan"):
        getattr(SVGD(gamma), call)([[1.0], [2.0], [3.0], [-1.0]])


def test_fixed_bandwidth_that_rounds_to_nothing():
    """A bandwidth that is 0 in the precision of the particles is named, in place of the density."""
    with pytest.raises(SVGDError, match=r"step 1: the bandwidth is 0\.0"):
        SVGD(lambda x: -0.5 * x[0] ** 2, bandwidth=1e-60).run(KEY, 4, 1, START)
