"""SVGD in one process: distributions, settings, restarts, and what is refused."""

from __future__ import annotations

import math
import signal
import warnings
from pathlib import Path

import pytest

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from srunbook.signals import StopSignal  # noqa: E402
from srunbook.svgd import (  # noqa: E402
    SVGD,
    DimensionWarning,
    PrecisionWarning,
    ProcessTiming,
    SVGDError,
    SVGDResult,
    kernel_stein_discrepancy,
    saved_steps,
)
from srunbook.svgd._layout import spread  # noqa: E402

KEY = jax.random.key(0)


def normal(x):
    """Compute the standard normal log density."""
    return -0.5 * jnp.sum(x**2)


def decaying(steps, rate=0.1):
    """Make steps that become smaller, so that a run ends at rest."""
    return optax.adam(optax.cosine_decay_schedule(rate, steps))


SLOWER = [(2, 0.915), (5, 0.691), (10, 0.430), (20, 0.201), (50, 0.085)]


@pytest.mark.parametrize(
    ("d", "expected"),
    [(1, 0.964), *(pytest.param(*row, marks=pytest.mark.full) for row in SLOWER)],
    ids=lambda value: str(value),
)
@pytest.mark.filterwarnings("ignore::srunbook.svgd.DimensionWarning")
def test_variance_of_a_normal_distribution(d, expected):
    """100 particles get the known part of the variance of a normal distribution, within 10 % of it."""
    result = SVGD(normal, dim=d, optimizer=decaying(1500)).run(KEY, 100, 1500)

    assert result.particles.var(axis=0).mean() == pytest.approx(expected, rel=0.1)
    assert result.phi_rms[-1] < 0.01 * result.phi_rms[0]


def test_too_many_dimensions():
    """With fewer than 10 particles per dimension there is a warning, with more there is none."""
    with pytest.warns(DimensionWarning, match=r"19 particles in 2 dimensions.*n_particles=20"):
        SVGD(normal, dim=2).run(KEY, 19, 1)
    SVGD(normal, dim=2).run(KEY, 20, 1)


def test_minibatches():
    """With rows drawn at each step mean and width are those of all rows; without scaling it is three times as wide."""
    rows = np.random.default_rng(0).normal(1.0, 1.0, 400).astype("float32")
    expected = rows.sum() / 401

    def log_likelihood(x, batch):
        return -0.5 * jnp.sum((batch - x[0]) ** 2)

    options = {"dim": 1, "data": rows, "log_likelihood": log_likelihood, "optimizer": decaying(600)}
    sampler = SVGD(normal, batch_size=40, **options)
    found = sampler.run(KEY, 60, 600).particles
    again = sampler.run(KEY, 60, 600).particles
    full = SVGD(normal, **options).run(KEY, 60, 600).particles
    options["log_likelihood"] = lambda x, batch: log_likelihood(x, batch) * 40 / 400
    unscaled = SVGD(normal, batch_size=40, **options).run(KEY, 60, 600).particles

    assert full.mean() == pytest.approx(expected, abs=0.002)
    assert full.std() == pytest.approx(1 / math.sqrt(401), rel=0.05)
    assert found.mean() == pytest.approx(expected, abs=0.05)
    assert found.std() == pytest.approx(1 / math.sqrt(401), rel=0.1)
    assert unscaled.std() == pytest.approx(1 / math.sqrt(41), rel=0.1)
    np.testing.assert_array_equal(found, again)


def test_bandwidths():
    """A number, and a function of the particles, are taken as the bandwidth."""
    x = np.random.default_rng(0).normal(size=(30, 2)).astype("float32")

    assert SVGD(normal, bandwidth=0.7).direction(x).bandwidth == pytest.approx(0.7)
    assert SVGD(normal, bandwidth=lambda x: jnp.sum(x**2)).direction(x).bandwidth == pytest.approx(
        (x**2).sum(), rel=1e-5
    )


@pytest.mark.parametrize("n", [128, pytest.param(129, marks=pytest.mark.full), 500])
def test_median(n):
    """Few pairs are all taken, of more a part: the default median is exact up to 1.5 %, three times its rms."""
    x = np.random.default_rng(0).normal(size=(n, 3)).astype("float32") + 1000
    distances = np.linalg.norm(x[:, None].astype(float) - x[None], axis=2)[np.triu_indices(n, 1)]
    expected = np.median(distances)

    exact, default = (SVGD(normal, bandwidth=rule).direction(x).bandwidth for rule in ("exact_median", "median"))
    assert math.sqrt(exact * math.log(n)) == pytest.approx(expected, rel=1e-5)
    assert math.sqrt(default * math.log(n)) == pytest.approx(expected, rel=1e-5 if n <= 128 else 0.015)


def test_particles_that_coincide():
    """Particles at the same place have no median distance, and still a finite direction."""
    x = np.ones((10, 2), "float32")
    direction = SVGD(normal).direction(x)

    np.testing.assert_allclose(direction.phi, -x, rtol=1e-6)


def test_tiles():
    """Particles in many tiles have the same direction as in one, and as from the definition."""
    from srunbook.svgd import _kernel

    x = np.random.default_rng(0).normal(size=(301, 3)).astype("float32")
    between = x[:, None].astype(float) - x[None]
    kernel = np.exp(-np.sum(between**2, axis=2))
    expected = (kernel @ -x + np.sum(kernel[:, :, None] * between, axis=1) * 2) / 301
    whole = SVGD(normal, bandwidth=1.0).direction(x).phi
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_kernel, "TILE_CPU", 1000)
        patch.setattr(_kernel, "MOST_TARGETS", 77)
        tiled = SVGD(normal, bandwidth=1.0).direction(x).phi

    np.testing.assert_allclose(whole, expected, atol=1e-6)
    np.testing.assert_allclose(tiled, expected, atol=1e-6)


def test_far_from_the_origin():
    """Particles far from the origin have the same direction as at it, up to the digits that their places have."""
    x = np.random.default_rng(0).normal(size=(50, 2)).astype("float32")

    near = SVGD(lambda x: -0.5 * jnp.sum(x**2), bandwidth=1.0).direction(x).phi
    far = SVGD(lambda x: -0.5 * jnp.sum((x - 1000) ** 2), bandwidth=1.0).direction(x + 1000).phi
    np.testing.assert_allclose(far, near, atol=2e-4)


@pytest.mark.parametrize(
    ("distance", "warns"),
    [
        (100, False),
        (300, True),
        pytest.param(30, False, marks=pytest.mark.full),
        pytest.param(1000, True, marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize("d", [1, 8])
def test_narrow_kernel(distance, warns, d):
    """With clusters far apart and a narrow kernel, float32 rounds as the documentation says, and warns from 1 % on."""
    random = np.random.default_rng(0)
    x = random.normal(size=(200, d))
    x[:, 0] += distance * np.where(np.arange(200) % 2, 1, -1)
    x = x.astype("float32")
    between = x[:, None].astype(float) - x[None]
    kernel = np.exp(-np.sum(between**2, axis=2))
    expected = (kernel @ -(x.astype(float) * 0.01) + np.sum(kernel[:, :, None] * between, axis=1) * 2) / 200
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = SVGD(lambda x: -0.005 * jnp.sum(x**2), bandwidth=1.0).direction(x).phi

    off = np.abs(found - expected).max() / np.abs(expected).max()
    assert off < 3e-7 * distance**2
    assert [warning.category for warning in caught] == [PrecisionWarning] * warns


def test_narrow_kernel_of_a_run():
    """A run that ends with a kernel too narrow for its particles warns with their distance and what helps."""
    start = np.linspace(-1000, 1000, 20, dtype="float32")[:, None]
    with pytest.warns(
        PrecisionWarning, match=r"up to 1e\+03 from their mean.* a length of 1: float32.*larger bandwidth"
    ):
        SVGD(lambda x: 0.0 * x[0], bandwidth=1.0).run(KEY, 20, 1, start)


def dense_ksd(x, scores, c=1.0, beta=-0.5):
    """Compute the definition, by differentiation of the kernel."""

    def kernel(x, y):
        return (c**2 + jnp.sum((x - y) ** 2)) ** beta

    def stein(x, y, s, t):
        mixed = jnp.trace(jax.jacfwd(jax.grad(kernel, 1), 0)(x, y))
        return kernel(x, y) * s @ t + jax.grad(kernel, 1)(x, y) @ s + jax.grad(kernel, 0)(x, y) @ t + mixed

    rows = jax.vmap(lambda x0, s0: jax.vmap(lambda y0, t0: stein(x0, y0, s0, t0))(x, scores))(x, scores)
    return float(jnp.sqrt(jnp.sum(rows))) / len(x)


@pytest.mark.parametrize(("kind", "limit"), [pytest.param("float32", 1e-4, marks=pytest.mark.full), ("float64", 1e-11)])
def test_ksd_is_that_of_the_definition(kind, limit):
    """The discrepancy is that of the definition in both precisions."""
    with jax.enable_x64(kind == "float64"):
        x = jnp.asarray(np.random.default_rng(0).normal(size=(60, 2)), kind)
        scores = -x + 0.3
        discrepancy = kernel_stein_discrepancy(x, scores)

        assert discrepancy.dtype == kind
        assert float(discrepancy) == pytest.approx(dense_ksd(x, scores), rel=limit)


def test_ksd_falls():
    """The discrepancy falls while particles find their distribution."""
    x = np.random.default_rng(0).normal(size=(60, 2)).astype("float32")
    sampler = SVGD(normal, optimizer=decaying(300))
    start = x * 0.3 + 2
    ended = sampler.run(KEY, 60, 300, start).particles
    assert sampler.ksd(ended) < 0.1 * sampler.ksd(start)


def test_optimizer_that_looks_at_all_particles():
    """An optimizer that limits the norm of all directions together works on the sharded particles."""
    clipping = optax.chain(optax.clip_by_global_norm(1e-3), optax.sgd(1.0))
    start = np.random.default_rng(0).normal(size=(20, 2)).astype("float32")
    moved = SVGD(normal, optimizer=clipping).run(KEY, 20, 1, start).particles - start

    assert np.linalg.norm(moved) == pytest.approx(1e-3, rel=1e-3)


def test_progress(capsys):
    """Progress is a line for each report; a run in pieces ends where a run in one piece ends."""
    quiet = SVGD(normal, dim=2).run(KEY, 30, 25)
    assert capsys.readouterr().out == ""
    told = SVGD(normal, dim=2).run(KEY, 30, 25, progress=True, every=10)

    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["step 10 of 25", "step 20 of 25", "step 25 of 25"]
    np.testing.assert_allclose(told.particles, quiet.particles, rtol=1e-6)
    assert len(told.bandwidths) == len(told.phi_rms) == 25


def test_restart(tmp_path):
    """A run in two parts, with the checkpoint between them, ends exactly where one in one part ends."""
    sampler = SVGD(normal, dim=2, optimizer=optax.adam(0.1), data=np.arange(8.0, dtype="float32"), batch_size=2,
                   log_likelihood=lambda x, rows: -jnp.sum((rows - x[0]) ** 2))  # fmt: skip
    whole = sampler.run(KEY, 21, 30, every=10, checkpoint=tmp_path / "whole")
    first = sampler.run(KEY, 21, 20, every=10, checkpoint=tmp_path / "parts")
    second = sampler.run(KEY, 21, 30, every=10, checkpoint=tmp_path / "parts")

    assert (first.steps, second.first_step, second.steps) == (20, 20, 30)
    np.testing.assert_array_equal(second.particles, whole.particles)
    assert not np.array_equal(first.particles, whole.particles)
    assert saved_steps(tmp_path / "parts") == [20, 30]
    ended = sampler.run(KEY, 21, 30, every=10, checkpoint=tmp_path / "parts")
    np.testing.assert_array_equal(ended.particles, whole.particles)
    assert len(ended.bandwidths) == 0


ROWS = np.random.default_rng(0).normal(size=(40, 2)).astype("float32")
CENTRE = np.array([0.5, -0.5], "float32")


def fit(x, rows):
    """Log likelihood of rows that are normal around x."""
    return -0.5 * jnp.sum((rows - x) ** 2)


def start_at(number):
    """Particles to start from."""
    return np.random.default_rng(number).normal(size=(21, 2)).astype("float32")


def saved_run(folder, **changes):
    """Start a run with data and a checkpoint; with everything as it was, or with a change."""
    given = {"log_density": normal, "key": KEY, "n": 21, "steps": 20, "start": None, "optimizer": optax.adam(0.1)}
    given |= {"data": ROWS, "log_likelihood": fit, "bandwidth": "median", "kernel": "rbf", "batch_size": None} | changes
    density, key, n, steps, start = (given.pop(name) for name in ("log_density", "key", "n", "steps", "start"))
    return SVGD(density, dim=2, **given).run(key, n, steps, start, every=10, checkpoint=folder)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Make a folder with the checkpoint of a run of 10 steps; nothing that is refused changes it."""
    folder = tmp_path_factory.mktemp("saved")
    saved_run(folder, steps=10)
    return folder


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"key": jax.random.key(9), "start": start_at(0)}, "key"),
        ({"n": 22}, "particles 21, not 22"),
        ({"batch_size": 5}, "batch_size None, not 5"),
        ({"kernel": "linear"}, "kernel rbf, not linear"),
        ({"bandwidth": 1.0}, "bandwidth median, not 1.0"),
    ],
)
def test_checkpoint_of_another_run(saved, changes, named):
    """A checkpoint of another run is rejected, with what differs and what to do; it stays as it was."""
    with pytest.raises(SVGDError, match=rf"{saved} has a run with {named}.*: give what that had, or another dir"):
        saved_run(saved, **changes)
    assert saved_steps(saved) == [10]


def test_checkpoint_with_more_steps(saved):
    """A checkpoint with more steps than are asked for is rejected; with as many the run has ended."""
    with pytest.raises(SVGDError, match=r"has step 10 of this run already, .* n_steps=9; give n_steps=10 or more"):
        saved_run(saved, steps=9)
    assert len(saved_run(saved, steps=10).bandwidths) == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of Orbax, when it fails to load
def test_damaged_checkpoint(tmp_path):
    """If the newest checkpoint is damaged, the one before is taken; if both are, one error says what to delete."""
    whole = saved_run(tmp_path, n=1000)
    damage(tmp_path / "20")
    with pytest.warns(UserWarning, match=r"20 is damaged: "):
        again = saved_run(tmp_path, n=1000)
    assert again.first_step == 10
    np.testing.assert_array_equal(again.particles, whole.particles)

    damage(tmp_path / "10")
    damage(tmp_path / "20")
    with (
        pytest.warns(UserWarning, match="is damaged"),
        pytest.raises(SVGDError, match="can be read: delete it to start over"),
    ):
        saved_run(tmp_path, n=1000)


def test_signal_at_the_end():
    """A signal after the last step stops nothing: the run has ended."""
    with StopSignal() as stop:
        signal.raise_signal(signal.SIGTERM)
        result = SVGD(normal, dim=2).run(KEY, 20, 10, every=10, stop=stop)
    assert (result.steps, result.stopped) == (10, False)


def damage(folder):
    """Flip a bit in the largest file of a checkpoint, which Orbax does not notice."""
    path = max(filter(Path.is_file, folder.rglob("*")), key=lambda path: path.stat().st_size)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_scores_that_are_not_finite():
    """A log density without finite gradient ends the run, with the step and the number of particles."""
    with pytest.raises(SVGDError, match=r"step 1: 1 of 20 particles have no finite log density or score"):
        SVGD(lambda x: jnp.log(x[0])).run(KEY, 20, 3, np.arange(20.0)[:, None])


@pytest.mark.parametrize(
    ("seconds", "slow"),
    [
        ([9.0], []),
        ([1.0, 1.4], []),
        ([1.6, 1.0], [0]),
        ([1.0, 1.0, 1.6], [2]),
        ([1.0, 1.1, 1.0, 1.6], [3]),
        ([1.6, 1.0, 1.6, 1.0], [0, 2]),
    ],
    ids=lambda value: str(value),
)
def test_slow_processes(seconds, slow):
    """A process whose scores take more than 1.5 times the median process's is slow, with 2, 3 and 4 processes."""
    empty = np.zeros(0)
    times = [(value, 90.0, value) for value in seconds]  # one sample that something else has slowed
    timings = tuple(ProcessTiming(number, f"n{number}", samples) for number, samples in enumerate(times))
    result = SVGDResult(np.zeros((1, 1)), 1, 0, empty, empty, 1.0, timings=timings)

    assert [timing.process_id for timing in result.slow_processes] == slow


@pytest.mark.parametrize(
    ("options", "run", "message"),
    [
        ({"bandwidth": "mean"}, (), r"bandwidth='mean': it is 'median' or 'exact_median', a number"),
        ({"bandwidth": -1.0}, (), r"bandwidth=-1\.0: a squared length is a number larger than 0"),
        ({"kernel": "imq"}, (), r"kernel='imq': it is 'rbf' or 'linear'"),
        ({"exchange": "ringg"}, (), r"exchange='ringg': it is 'all_gather' or 'ring'"),
        ({"dim": 0}, (), r"dim=0"),
        ({"mesh": jax.devices()}, (), r"it is a mesh, as in jax\.make_mesh"),
        ({"dim": 2.0}, (), r"dim=2\.0: it is a whole number, 1 to 2147483647, as in dim=2"),
        ({"optimizer": 0.05}, (), r"optimizer=0\.05: it is one of optax, as in optimizer=optax\.adam\(0\.05\)"),
        ({"data": np.ones(3)}, (), r"only data= is given"),
        ({"log_likelihood": normal}, (), r"only log_likelihood= is given"),
        ({"data": (np.ones(3), np.ones(2)), "log_likelihood": normal}, (), r"\[2, 3\] rows"),
        ({"data": np.ones(3), "log_likelihood": normal, "batch_size": 4}, (), r"batch_size=4: .* 1 to 3"),
        (
            {"data": np.ones(3), "log_likelihood": normal, "batch_size": 2.5},
            (),
            r"batch_size=2\.5: it is a whole number",
        ),
        (
            {"data": np.ones(3), "log_likelihood": normal, "batch_size": True},
            (),
            r"batch_size=True: it is a whole number",
        ),
        (
            {"data": np.ones(3), "log_likelihood": normal, "batch_size": "2"},
            (),
            r"batch_size='2': it is a whole number",
        ),
        ({"batch_size": 2}, (), r"batch_size=2: .*data="),
        ({"dim": True}, (), r"dim=True: it is a whole number"),
        ({"dim": 2}, (True, 5), r"n_particles=True: it is a whole number"),
        ({"dim": 2}, (np.bool_(True), 5), r"n_particles=.*True.*: it is a whole number"),
        ({"dim": 2}, (10, True), r"n_steps=True: it is a whole number"),
        ({"dim": 2}, (10, 2**31), r"n_steps=2147483648: it is a whole number, 0 to 2147483647"),
        ({"dim": 2}, (10, math.nan), r"n_steps=nan: it is a whole number"),
        ({"dim": 2}, (10, "5"), r"n_steps='5': it is a whole number"),
        ({"bandwidth": True}, (), r"bandwidth=True: a squared length is a number"),
        ({"bandwidth": None}, (), r"bandwidth=None: a squared length is a number"),
        ({"bandwidth": math.nan}, (), r"bandwidth=nan: a squared length is a number"),
        ({"bandwidth": 10**400}, (), r"bandwidth=1000+: a squared length is a number"),
        ({"bandwidth": 1j}, (), r"bandwidth=1j: a squared length is a number"),
        ({"bandwidth": np.ones(2)}, (), r"bandwidth=array\(\[1\., 1\.\]\): a squared length is a number"),
        ({}, (10, 5), r"initial= and dim= are both missing"),
        ({"dim": 2}, (0, 5), r"n_particles=0"),
        ({"dim": 2}, (10, -1), r"n_steps=-1"),
        ({"dim": 2}, (10, 1e3), r"n_steps=1000\.0: it is a whole number, 0 to 2147483647, as in n_steps=1000"),
        ({"dim": 2}, (10.0, 5), r"n_particles=10\.0: it is a whole number"),
        ({}, (2, 5, [[1.0], [math.nan]]), r"1 of 2 particles are not finite, first number 1, at \[nan\]"),
        ({}, (2, 5, np.ones((2, 0))), r"shape \(2, 0\)"),
        ({}, (2, 5, np.ones((2, 1), complex)), r"type complex128; needed are numbers"),
        ({"dim": 1, "bandwidth": lambda x: x}, (20, 5), r"bandwidth\(particles\) has the shape \(20, 1\); it is one"),
        ({"data": np.ones((0, 2)), "log_likelihood": normal}, (), r"\[0\] rows; all have the same number, 1 or more"),
        ({"data": [], "log_likelihood": normal}, (), r"\[\] rows"),
        ({"data": 1.0, "log_likelihood": normal}, (), r"\[0\] rows"),
        ({"dim": 2}, (10, 5, np.ones((10, 3))), r"shape \(10, 3\); needed is \(10, 2\)"),
        ({}, (10, 5, np.ones(10)), r"shape \(10,\).*\(n, d\)"),
    ],
)
def test_refused(options, run, message):
    """What cannot be right is refused, with what was found and what is allowed."""
    with pytest.raises(ValueError, match=message):
        SVGD(normal, **options).run(KEY, *run)


def test_density_that_is_no_number():
    """A log density of another shape than () is refused with an example."""
    with pytest.raises(ValueError, match=r"shape \(2,\); it is one number, as in"):
        SVGD(lambda x: -(x**2), dim=2).run(KEY, 20, 1)


def test_numbers_of_numpy_and_jax():
    """Whole numbers of NumPy are taken, and bandwidths of NumPy and JAX."""
    options = {"dim": np.int64(1), "data": np.ones(3), "log_likelihood": lambda x, rows: -jnp.sum((rows - x[0]) ** 2)}
    sampler = SVGD(normal, batch_size=np.int32(2), bandwidth=np.float32(1), **options)
    assert sampler.run(KEY, np.uint8(20), np.int64(2), every=np.int64(1)).steps == 2
    assert SVGD(normal, bandwidth=jnp.array(1.0)).direction(np.ones((2, 1), "float32")).bandwidth == 1


@pytest.mark.parametrize(
    ("c", "beta"),
    [(math.nan, -0.5), (math.inf, -0.5), (True, -0.5), ("1", -0.5), (1.0, math.nan), (1.0, None), (1.0, 0)],
)
def test_kernels_of_a_discrepancy(c, beta):
    """What is no length or exponent of the discrepancy's kernel is refused."""
    x = jnp.ones((3, 1))
    with pytest.raises(ValueError, match=r"needs c > 0 and -1 < beta < 0, as in c=1.0, beta=-0.5"):
        kernel_stein_discrepancy(x, x, c=c, beta=beta)


@pytest.mark.parametrize("key", [0, None, jax.random.split(KEY, 2)], ids=["number", "none", "two keys"])
def test_what_is_no_key(key):
    """What is not one key is refused with an example."""
    with pytest.raises(ValueError, match=r"it is one random key, as in jax\.random\.key\(0\)"):
        SVGD(normal, dim=1).run(key, 10, 1)


def test_key_of_the_older_kind():
    """A key of the older kind gives what the newer one gives."""
    sampler = SVGD(normal, dim=1)

    np.testing.assert_array_equal(
        sampler.run(jax.random.PRNGKey(0), 10, 3).particles, sampler.run(KEY, 10, 3).particles
    )


def test_density_that_is_no_function():
    """A density that is no function is refused with an example."""
    with pytest.raises(ValueError, match=r"log_density=0\.0: it is a function of one particle, as in lambda x"):
        SVGD(0.0)


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, math.nan])
def test_impossible_bandwidths(bandwidth):
    """A function that gives an impossible bandwidth ends the run, with the step."""
    with pytest.raises(SVGDError, match=rf"step 1: bandwidth\(particles\) is {bandwidth}; it is a squared length"):
        SVGD(normal, dim=1, bandwidth=lambda x: bandwidth).run(KEY, 10, 3)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "int32", "float64"])
def test_other_types(kind):
    """Particles of other types start from the same places, in float32."""
    start = np.arange(10.0)[:, None] / 4 - 1 if kind != "int32" else np.arange(10.0)[:, None]
    sampler = SVGD(normal)
    expected = sampler.run(KEY, 10, 5, start.astype("float32")).particles
    found = sampler.run(KEY, 10, 5, start.astype(jnp.dtype(kind))).particles

    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)


def test_data_that_are_not_finite():
    """A missing value among the data ends the run at once."""
    rows = np.array([1.0, math.nan, 2.0], "float32")
    sampler = SVGD(normal, dim=1, data=rows, log_likelihood=lambda x, rows: -jnp.sum((rows - x[0]) ** 2))
    with pytest.raises(SVGDError, match=r"step 1: 10 of 10 particles have no finite log density or score"):
        sampler.run(KEY, 10, 3)


@pytest.mark.parametrize("n", [1, 3, 4, 7, 8])
def test_placement(n):
    """Each particle lies on one device, and on the one that says so."""
    sampler = SVGD(normal, dim=1)
    placed = spread(np.arange(float(n), dtype="float32")[:, None], sampler.settings.layout(n), sampler.mesh)
    held = {f"{shard.device.platform}:{shard.device.id}": shard.data for shard in placed.addressable_shards}

    holdings = sampler.placement(n)
    assert sorted(number for holding in holdings for number in holding.particles) == list(range(n))
    assert [holding.process_id for holding in holdings] == [0] * len(jax.devices())
    for holding in holdings:
        rows = np.asarray(held[holding.device])[: len(holding.particles), 0]
        np.testing.assert_array_equal(rows, list(holding.particles))
