"""SVGD in one process: distributions, settings, restarts, densities that are not finite, and what is rejected."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import pytest

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from srunbook.svgd import SVGD, ProcessTiming, SVGDError, SVGDResult, kernel_stein_discrepancy, saved_steps  # noqa: E402

KEY = jax.random.key(0)


def normal(x):
    """Compute the standard normal log density."""
    return -0.5 * jnp.sum(x**2)


def decaying(steps, rate=0.1):
    """Make steps that become smaller, so that a run ends at rest."""
    return optax.adam(optax.cosine_decay_schedule(rate, steps))


def draws(*shape):
    """Draw standard normal numbers."""
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def directions(x, scores, h):
    """Compute the definition in float64: one term for each pair."""
    between = x[:, None].astype(float) - x[None]
    kernel = np.exp(-np.sum(between**2, axis=2) / h)
    return (kernel @ scores + np.sum(kernel[:, :, None] * between, axis=1) * 2 / h) / len(x)


def test_normal_distribution():
    """100 particles come to rest with the known part of the variance, and with a small discrepancy."""
    sampler = SVGD(normal, optimizer=decaying(300))
    start = draws(100, 1) * 0.3 + 2
    result = sampler.run(KEY, 100, 300, start)

    assert result.particles.var() == pytest.approx(0.964, rel=0.1)
    assert result.phi_rms[-1] < 0.05 * result.phi_rms[0]
    assert sampler.ksd(result.particles) < 0.1 * sampler.ksd(start)


def test_minibatches():
    """With rows drawn at each step, mean and width are those of all rows: their sum is scaled."""
    rows = draws(400) + 1

    def log_likelihood(x, batch):
        return -0.5 * jnp.sum((batch - x[0]) ** 2)

    options = {"dim": 1, "data": rows, "log_likelihood": log_likelihood, "optimizer": decaying(300)}
    found = SVGD(normal, batch_size=40, **options).run(KEY, 60, 300).particles

    assert found.mean() == pytest.approx(rows.sum() / 401, abs=0.05)
    assert found.std() == pytest.approx(1 / math.sqrt(401), rel=0.1)


@pytest.mark.parametrize("n", [128, 500])
def test_median(n):
    """Few pairs are all taken, of more a part: the default median is exact up to 1.5 %, three times its rms."""
    x = draws(n, 3) + 1000
    distances = np.linalg.norm(x[:, None].astype(float) - x[None], axis=2)[np.triu_indices(n, 1)]
    expected = np.median(distances)

    bandwidth = SVGD(normal).direction(x).bandwidth
    assert math.sqrt(bandwidth * math.log(n)) == pytest.approx(expected, rel=1e-5 if n <= 128 else 0.015)


@pytest.mark.parametrize("tile", [1 << 20, 100])
def test_tiles(tile, monkeypatch):
    """Particles in few and in many tiles have the direction of the definition."""
    from srunbook.svgd import kernel

    monkeypatch.setattr(kernel, "TILE_CPU", tile)
    monkeypatch.setattr(kernel, "MOST_TARGETS", 7 if tile == 100 else kernel.MOST_TARGETS)
    x = draws(301, 3)

    found = SVGD(normal, bandwidth=1.0).direction(x).phi
    np.testing.assert_allclose(found, directions(x, -x.astype(float), 1.0), atol=1e-6)


def test_narrow_kernel():
    """With clusters far apart and a narrow kernel, float32 rounds as the documentation says."""
    x = draws(200, 8)
    x[:, 0] += 300 * np.where(np.arange(200) % 2, 1, -1)
    expected = directions(x, -0.01 * x.astype(float), 1.0)
    found = SVGD(lambda x: 0.01 * normal(x), bandwidth=1.0).direction(x).phi

    assert np.abs(found - expected).max() < 3e-7 * 300**2 * np.abs(expected).max()


def test_ksd_is_that_of_the_definition():
    """The discrepancy is that of the definition, by differentiation of the kernel."""

    def kernel(x, y):
        return (1 + jnp.sum((x - y) ** 2)) ** -0.5

    def stein(x, y, s, t):
        mixed = jnp.trace(jax.jacfwd(jax.grad(kernel, 1), 0)(x, y))
        return kernel(x, y) * s @ t + jax.grad(kernel, 1)(x, y) @ s + jax.grad(kernel, 0)(x, y) @ t + mixed

    with jax.enable_x64(True):
        x = jnp.asarray(draws(20, 2), "float64")
        scores = -x + 0.3
        rows = jax.vmap(lambda x0, s0: jax.vmap(lambda y0, t0: stein(x0, y0, s0, t0))(x, scores))(x, scores)
        expected = float(jnp.sqrt(jnp.sum(rows))) / 20

        assert float(kernel_stein_discrepancy(x, scores)) == pytest.approx(expected, rel=1e-11)


def test_progress(capsys):
    """Progress is a line for each report; a run in pieces ends where a run in one piece ends."""
    sampler = SVGD(normal, dim=2)
    quiet = sampler.run(KEY, 30, 25)
    assert capsys.readouterr().out == ""
    told = sampler.run(KEY, 30, 25, progress=True, every=10)

    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["step 10 of 25", "step 20 of 25", "step 25 of 25"]
    np.testing.assert_allclose(told.particles, quiet.particles, rtol=1e-6)
    assert len(told.bandwidths) == len(told.phi_rms) == 25


@pytest.mark.parametrize(
    ("seconds", "slow"), [([], []), ([1.0, 1.4], []), ([1.0, 1.0, 1.6], [2]), ([1.6, 1.0, 1.6, 1.0], [0, 2])], ids=str
)
def test_slow_processes(seconds, slow):
    """A process whose scores take more than 1.5 times the median process's is slow."""
    times = [(value, 90.0, value) for value in seconds]  # one sample that something else has slowed
    timings = tuple(ProcessTiming(number, f"n{number}", samples) for number, samples in enumerate(times))
    result = SVGDResult(np.zeros((1, 1)), 1, 0, np.zeros(0), np.zeros(0), 1.0, timings=timings)

    assert [timing.process_id for timing in result.slow_processes] == slow


ROWS = draws(40, 2)


@functools.cache
def fitting(scale=1, **changes):
    """Make a sampler with data, with everything as it was, or with a change."""
    given = {"data": scale * ROWS, "log_likelihood": lambda x, rows: -0.5 * jnp.sum((rows - x) ** 2), "batch_size": 2}
    return SVGD(normal, dim=2, optimizer=optax.adam(0.1), **given | changes)


def saved_run(folder, steps=20, n=1000, key=KEY, **changes):
    """Run with checkpoints."""
    return fitting(**changes).run(key, n, steps, every=10, checkpoint=folder)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Make a folder with the checkpoint of a run of 10 steps; nothing that is rejected changes it."""
    folder = tmp_path_factory.mktemp("saved")
    saved_run(folder, 10, n=21)
    return folder


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key": jax.random.key(9)}, r"has a run with key .*: give what that had, or another directory"),
        ({"n": 22}, "particles 21, not 22"),
        ({"batch_size": 5}, "batch_size 2, not 5"),
        ({"kernel": "linear"}, "kernel rbf, not linear"),
        ({"bandwidth": 1.0}, "bandwidth median, not 1.0"),
        ({"scale": 2}, r"data \w{16}, not \w{16}"),
        ({"steps": 9}, r"has step 10 of this run already, .* n_steps=9; give n_steps=10 or more"),
    ],
)
def test_checkpoint_of_another_run(saved, changes, message):
    """A checkpoint of another run, or with more steps, is rejected, with what differs; it stays as it was."""
    with pytest.raises(SVGDError, match=message):
        saved_run(saved, **{"n": 21} | changes)
    assert saved_steps(saved) == [10]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of Orbax, when it fails to load
def test_restart_and_damage(tmp_path):
    """A run continues exactly where its newest sound checkpoint ends; if none is sound, one error says what to do."""
    first = saved_run(tmp_path, 10)
    whole = saved_run(tmp_path, 20)
    assert (first.steps, whole.first_step, whole.steps) == (10, 10, 20)
    assert not np.array_equal(first.particles, whole.particles)
    assert saved_steps(tmp_path) == [10, 20]

    damage(tmp_path / "20")
    with pytest.warns(UserWarning, match=r"20 is damaged: "):
        again = saved_run(tmp_path, 20)
    assert again.first_step == 10
    np.testing.assert_array_equal(again.particles, whole.particles)

    damage(tmp_path / "10")
    damage(tmp_path / "20")
    with (
        pytest.warns(UserWarning, match="is damaged"),
        pytest.raises(SVGDError, match="can be read: delete it to start over"),
    ):
        saved_run(tmp_path, 20)


def test_what_another_process_cannot_read(saved, monkeypatch):
    """A process that could read a checkpoint does not use it if another could not."""
    both = {1: lambda steps: np.array([steps, steps]), 0: lambda _: np.array([True, False])}
    gather = "srunbook.svgd.checkpoints.multihost_utils.process_allgather"
    monkeypatch.setattr(gather, lambda mine: both[mine.ndim](mine))
    with (
        pytest.warns(UserWarning, match="10 is damaged: another process cannot read it"),
        pytest.raises(SVGDError, match="can be read: delete it to start over"),
    ):
        saved_run(saved, 20, n=21)


def test_full_disk(tmp_path, monkeypatch):
    """A failed save is one error that names the folder; what lies beside the checkpoints is left alone."""
    (tmp_path / "10.tar").touch()
    (tmp_path / "99").touch()
    saved_run(tmp_path, 10)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("srunbook.svgd.checkpoints.ocp.save", full)
    with pytest.raises(SVGDError, match=rf"cannot save in {tmp_path}: .* left on device; make room there"):
        saved_run(tmp_path, 20)
    assert saved_steps(tmp_path) == [10]


def damage(folder):
    """Flip a bit in the largest file of a checkpoint, which Orbax does not notice."""
    path = max(filter(Path.is_file, folder.rglob("*")), key=lambda path: path.stat().st_size)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("options", "run", "message"),
    [
        ({"bandwidth": "mean"}, (), r"could not convert string to float: 'mean'"),
        ({"bandwidth": -1.0}, (), r"bandwidth=-1\.0: a squared length is larger than 0"),
        ({"kernel": "imq"}, (), r"kernel='imq': it is 'rbf' or 'linear'"),
        ({"dim": 2.0}, (), r"dim=2\.0: it is a whole number, 1 to 2147483647, as in dim=2"),
        ({"data": np.ones(3)}, (), r"only data= is given"),
        ({"data": (np.ones(3), np.ones(2)), "log_likelihood": normal}, (), r"\[2, 3\] rows"),
        ({"data": np.ones(3), "log_likelihood": normal, "batch_size": 4}, (), r"batch_size=4: .* 1 to 3"),
        ({"batch_size": 2}, (), r"batch_size=2: .*data="),
        ({}, (10, 5), r"initial= and dim= are both missing"),
        ({"dim": 2}, (0, 5), r"n_particles=0"),
        ({"dim": 2}, (10, 5, np.ones((10, 3))), r"shape \(10, 3\); needed is \(10, 2\)"),
        ({}, (2, 5, [[1.0], [math.nan]]), r"1 of 2 particles are not finite, first number 1, at \[nan\]"),
        ({"dim": 1, "bandwidth": lambda x: x}, (20, 5), r"bandwidth\(particles\) has the shape \(20, 1\); it is one"),
    ],
)
def test_rejected(options, run, message):
    """What cannot be right is rejected, with what was found and what is allowed."""
    with pytest.raises(ValueError, match=message):
        SVGD(normal, **options).run(KEY, *run)


def falling(x):
    """Drive particles down to 0, where the support ends."""
    return jnp.where(x[0] < 0, jnp.nan, -x[0])


@pytest.mark.parametrize("value", [math.nan, -math.inf, math.inf])
def test_value_that_is_not_finite(value):
    """A value that is not finite is rejected whatever the gradient is; the particle and its place are named."""
    sampler = SVGD(lambda x: jnp.where(x[0] < 0, value, -(x[0] ** 2)))
    start = np.array([[0.5], [2.0], [-0.125], [0.25]], "float32")
    with pytest.raises(SVGDError, match=rf"^step 1: 1 of 4 particles .*particle 2.* \[-0\.125\].* {value}"):
        sampler.run(KEY, 4, 3, start)


def test_minibatch_that_is_not_finite():
    """A log likelihood that is NaN for some rows ends the run at the step that draws them, which the error says."""

    def log_likelihood(x, batch):
        return jnp.where(jnp.any(batch == 3), jnp.nan, 0.0) - 0.5 * jnp.sum((x[0] - batch) ** 2)

    sampler = SVGD(normal, dim=1, data=np.arange(8.0), log_likelihood=log_likelihood, batch_size=1)
    with pytest.raises(SVGDError, match=r"^step \d+: 4 of 4 particles .* with the rows drawn"):
        sampler.run(KEY, 4, 100)


@pytest.mark.parametrize(
    ("rate", "place", "steps", "message"),
    [
        (0.5, 1.5, 50, r"^step 8: 1 of 2 particles .*particle 1.* \[-0\.25\]"),
        (1.0, 0.75, 2, r"^after step 2: 1 of 2 particles .*particle 1.* \[-0\.25\]"),
    ],
    ids=["on the way", "in the last step"],
)
def test_step_and_place_of_the_failure(tmp_path, rate, place, steps, message):
    """The step is the one at which a particle is outside, with its place there; it is neither returned nor saved."""
    sampler = SVGD(falling, optimizer=optax.sgd(rate), bandwidth=1.0)
    start = np.array([[100.0], [place]], "float32")
    with pytest.raises(SVGDError, match=message):
        sampler.run(KEY, 2, steps, start, every=steps - 1, checkpoint=tmp_path)

    assert saved_steps(tmp_path) == [1] * (steps == 2)
