"""SVGD on several devices and processes: exact answers, the same on each layout; stops and restarts."""

from __future__ import annotations

import functools
import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from support.comparing import Mask
from support.svgd_oracles import LIMITS, SHARE, too_far

from srunbook import simulate
from srunbook.ranklog import RankEnd, RankStart, parse_rank_lines
from srunbook.signals import EXIT_STOPPED
from srunbook.svgd import saved_steps

pytest.importorskip("optax")

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.usefixtures("compiled_once")
ORACLES = ROOT / "tests" / "support" / "svgd_oracles.py"
EXAMPLES = ROOT / "examples" / "svgd"

PROGRAMS = {
    "coalescent_posterior.py": ("slurm_multinode_example.py",),
    "device_map.py": (),
    "logistic_regression.py": (),
}
"""The programs that are tested here, and what each needs beside it."""

DRAWN = ("coalescent_posterior.py",)
"""Those that a driver of the gallery runs on two processes in each build of the site."""

MASKS = (
    Mask(r"\bhost=\S+", "host=<node>", "node names are loopback addresses, where the platform has several"),
    Mask(r"\bparams=\w+", "params=<hash>", "processors round in different ways"),
    Mask(r"(?<!jax-)\b[+-]?\d+\.\d+", "<n>", "processors round in different ways; other asserts look at the values"),
)


@functools.cache
def oracles(how, processes, devices, counts):
    """Return what the oracles found: one row for each number of devices, precision and exchange."""
    result = simulate.run(
        [sys.executable, "-W", "ignore", str(ORACLES), how, *map(str, counts)],
        nodes=min(processes, 2),
        ntasks_per_node=max(1, processes // 2),
        env={"JAX_NUM_CPU_DEVICES": str(devices)},
    )
    assert result.returncode == 0, result.failure
    return [
        [json.loads(row) for row in re.findall(r"^oracle (.*)$", rank.output, re.MULTILINE)] for rank in result.ranks
    ]


ONE = ("right", 2, 2, (4,))
ALL = (("right", 1, 4, (1, 2, 3, 4)), ONE, ("right", 4, 1, (4,)))
"""What is computed, processes, devices of each, and the numbers of devices that take part."""


@pytest.mark.parametrize(
    ("how", "processes", "devices", "counts"),
    [pytest.param(*layout, marks=() if layout is ONE else pytest.mark.full) for layout in ALL],
)
def test_exact_answers(how, processes, devices, counts):
    """All exact answers come out in both precisions, with both exchanges, on several devices and processes."""
    ranks = oracles(how, processes, devices, counts)

    assert len(ranks) == processes
    for rows in ranks:
        assert {row["devices"] for row in rows} == set(counts)
        assert len(rows) == (2 if how == "exact" else 4) * len(counts)
        assert {(row["devices"], row["kind"]) for row in rows if "shares" in row} == {
            (count, kind) for count in counts for kind in LIMITS if how == "right"
        }
        for row in rows:
            assert too_far(row) == [], row


@pytest.mark.full
@pytest.mark.timeout(1200)  # where it runs without the test above
def test_the_same_on_all_layouts():
    """A run with 13 particles, which no layout divides evenly, ends in the same place on all layouts."""
    ranks = [found for layout in ALL for found in oracles(*layout)]

    for kind, limit in LIMITS.items():
        sums = [row["errors"]["checksum"] for found in ranks for row in found if row["kind"] == kind]
        assert len(sums) == 2 * (4 + 2 + 4)
        np.testing.assert_allclose(sums, sums[0], rtol=20 * limit)


def test_wrong_sign_is_seen():
    """Particles that attract each other, as in the existing software, fail at every exact answer with a repulsion."""
    ((*rows,),) = oracles("wrong-sign", 1, 1, (1,))

    for row in rows:
        assert {"two particles settle", "direction", "repulsion", "closing speed"} <= set(too_far(row))


RUN = """
import os, signal, sys
from srunbook import initialize_distributed
info = initialize_distributed(timeout=600)
import jax, jax.numpy as jnp, numpy as np, optax
from srunbook.signals import StopSignal
from srunbook.svgd import SVGD

def log_density(x):
    return -0.5 * jnp.sum((x - 1.0) ** 2)

def save(result):
    if info.is_coordinator:
        np.save(sys.argv[2], result.particles)

sampler = SVGD(log_density, dim=2, optimizer=optax.adam(0.1))
key = jax.random.key(3)
"""

STOPPED = """
# An end at rest: Adam with steps that stay long divides rounding by ever smaller directions.
sampler = SVGD(log_density, dim=2, optimizer=optax.adam(optax.cosine_decay_schedule(0.1, 500)))
with StopSignal() as stop:
    count = 0
    real = stop.requested
    def requested():
        global count
        count += 1
        if count == 3 and info.process_id == 1 and len(sys.argv) > 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return real()
    stop.requested = requested
    result = sampler.run(key, 21, 500, checkpoint=sys.argv[1], every=10, stop=stop)
    save(result)
    sys.stdout.write(f"said {result.first_step} {result.steps} {result.stopped}\\n")
    sys.stdout.flush()
    if result.stopped:
        stop.leave()
"""


def said(result, word):
    """Return what each rank printed after a word."""
    return [re.findall(rf"^{word} (.*)$", rank.output, re.MULTILINE) for rank in result.ranks]


@pytest.mark.parametrize(("kind", "limit"), [pytest.param("float32", 2e-5, marks=pytest.mark.full), ("float64", 1e-13)])
def test_stop_and_resume(kind, limit, program, tmp_path):
    """SIGTERM to one process: all save the same step, and go on to exactly the undisturbed end.

    On another layout sums are made in another order: one process goes on to the same end but for rounding, some units
    in the last place after 500 steps, in both precisions.
    """
    command = program(RUN + STOPPED)

    def run(folder, *more, nodes):
        environ = {"JAX_ENABLE_X64": str(int(kind == "float64"))}
        arguments = [str(tmp_path / folder), str(tmp_path / f"{folder}-{nodes}.npy"), *more]
        return simulate.run([*command, *arguments], nodes=nodes, ntasks_per_node=1, env=environ)

    stopped = run("saved", "stop", nodes=2)
    assert stopped.returncode == EXIT_STOPPED, stopped.failure
    ((first,), (second,)) = said(stopped, "said")
    assert first == second
    step = int(first.split()[1])
    assert first == f"0 {step} True"
    assert 0 < step < 500
    assert saved_steps(tmp_path / "saved")[-1] == step

    shutil.copytree(tmp_path / "saved", tmp_path / "copy")
    again, alone, whole = run("saved", nodes=2), run("copy", nodes=1), run("other", nodes=2)
    for result, begin in ((again, step), (alone, step), (whole, 0)):
        assert result.returncode == 0, result.failure
        assert {answer for (answer,) in said(result, "said")} == {f"{begin} 500 False"}
    resumed, elsewhere, undisturbed = (np.load(tmp_path / f"{name}.npy") for name in ("saved-2", "copy-1", "other-2"))
    assert resumed.dtype == kind
    np.testing.assert_array_equal(resumed, undisturbed)
    np.testing.assert_allclose(elsewhere, undisturbed, rtol=0, atol=limit)


DIFFERENT = """
from srunbook.svgd import SVGDError
mine = info.process_id
ones, rows = np.ones((20, 2)), np.arange(4.0) + mine

def fit(x, rows):
    return -jnp.sum((rows - x[0]) ** 2)

for attempt in (
    lambda: sampler.run(key, 20, 5, np.random.default_rng(mine).normal(size=(20, 2))),
    lambda: sampler.run(key, 20 + mine, 5),
    lambda: sampler.run(jax.random.key(mine), 20, 5, ones),
    lambda: SVGD(log_density, log_likelihood=fit, data=rows).run(key, 20, 5, ones),
    lambda: sampler.run(key, 20, 5 + mine, ones),
    lambda: SVGD(log_density, exchange=("ring", "all_gather")[mine]).run(key, 20, 5, ones),
    lambda: sampler.run(key, 20, 5, ones, progress=True, every=1 + mine),
    lambda: sampler.run(key, 20, 5, ones, timing_log=sys.argv[1] if mine == 0 else None),
    lambda: sampler.run(key, 20, 5, ones, checkpoint=sys.argv[1] if mine == 0 else None),
    lambda: SVGD(lambda x: log_density(x - mine)).run(key, 20, 5, ones),
):
    try:
        attempt()
    except SVGDError as error:
        sys.stdout.write(f"refused {error}\\n")
        sys.stdout.flush()
sys.stdout.write(f"ran {sampler.run(key, 20, 5, ones).steps}\\n")
sys.stdout.flush()
"""


def test_different_calls_are_refused(program):
    """Processes that do not make the same call are told in what it differs, for nothing else would notice."""
    result = simulate.run([*program(RUN + DIFFERENT), "-", "-"], nodes=2)

    assert result.returncode == 0, result.failure
    differences = ["starts from other particles"] * 2 + ["has another key", "has other data"]
    differences += [f"has another {name}" for name in ("n_steps", "exchange", "every", "timing_log", "checkpoint")]
    differences.append("has another log density")
    for refusals in said(result, "refused"):
        assert [text.split(" than process 0; ")[0] for text in refusals] == [
            f"process 1 {what}" for what in differences
        ]
    assert said(result, "ran") == [["5"]] * 2


OUTSIDE = """
from srunbook.svgd import SVGDError
start = np.arange(1.0, 22.0)[:, None]
start[17] = -0.5
try:
    SVGD(lambda x: 2 * jnp.log(x[0]) - x[0]).run(key, 21, 5, start)
except SVGDError as error:
    sys.stdout.write(f"refused {error}\\n")
    sys.stdout.flush()
"""


def test_density_that_is_not_finite_on_another_process(program):
    """All processes end with the same error when a particle of one of them is outside the support of the density."""
    result = simulate.run([*program(RUN + OUTSIDE), "-", "-"], nodes=2, env={"JAX_NUM_CPU_DEVICES": "2"})

    assert result.returncode == 0, result.failure
    ((first,), (second,)) = said(result, "refused")
    assert first == second
    assert first.startswith(
        "step 1: 1 of 21 particles have no finite log density or score, first particle 17 at [-0.5]: log density nan"
    )


COORDINATOR = """
quiet = sampler.run(key, 21, 25).particles
for progress in (info.is_coordinator, not info.is_coordinator):
    told = sampler.run(key, 21, 25, progress=progress, every=10)
    np.testing.assert_allclose(told.particles, quiet, rtol=1e-6)
    sys.stdout.write(f"ran {told.steps}\\n")
    sys.stdout.flush()
"""


def test_progress_of_the_coordinator(program):
    """`progress=info.is_coordinator` gives a line at every report; what the others are given does not matter."""
    result = simulate.run([*program(RUN + COORDINATOR), "-", "-"], nodes=2)

    assert result.returncode == 0, result.failure
    assert said(result, "ran") == [["25", "25"]] * 2
    assert [re.findall(r"^step (\d+) of 25:", rank.output, re.MULTILINE) for rank in result.ranks] == [
        ["10", "20", "25"],
        [],
    ]


SLOW = """
from srunbook.svgd import _timing
real = _timing.seconds_of
def slowed(*arguments):
    return real(*arguments) + 1.0 * (info.process_id == 2)
_timing.seconds_of = slowed
result = sampler.run(key, 64, 30, every=10, timing_log=sys.argv[1])
sys.stdout.write(f"slow {[timing.process_id for timing in result.slow_processes]}\\n")
sys.stdout.flush()
"""


def test_timing_log(program, tmp_path):
    """The timing log has a line of each process for each report, and the slow process is named to all."""
    log = tmp_path / "times.jsonl"
    result = simulate.run([*program(RUN + SLOW), str(log), "-"], nodes=3)

    assert result.returncode == 0, result.failure
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(row["step"], row["process"]) for row in rows] == [(step, p) for step in (10, 20, 30) for p in range(3)]
    assert {row["host"] for row in rows} == {"127.0.0.1", "127.0.0.2", "127.0.0.3"}
    assert [answers[0] for answers in said(result, "slow")] == ["[2]"] * 3


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full if name in DRAWN else ()) for name in PROGRAMS]
)
def test_program(name, reader, pytestconfig):
    """A program runs on two processes, and alone, as its first lines say, and prints what was recorded."""
    commands = reader.commands(EXAMPLES / name)
    assert len(commands) == 2
    for command in commands[0 if pytestconfig.getoption("--full") else 1 :]:
        run = reader.run(EXAMPLES / name, command, beside=[EXAMPLES / other for other in PROGRAMS[name]])
        assert run.status == 0, f"{command}\n{run.text}"
        processes = 2 if command.startswith("srunbook") else 1
        starts = [line for line in parse_rank_lines(run.lines) if isinstance(line, RankStart)]
        ends = [line for line in parse_rank_lines(run.lines) if isinstance(line, RankEnd)]
        assert {start.world_size for start in starts} == {processes}
        assert len(ends) == processes
        assert len({end.params for end in ends}) == 1
        if name == "coalescent_posterior.py":
            shares = [float(share) for share in re.findall(r"exact .*  (\S+) %", run.text)]
            assert len(shares) == 4
            assert max(map(abs, shares)) < 100 * SHARE

    reader.compare(EXAMPLES / name, run, lambda line: True, MASKS)
