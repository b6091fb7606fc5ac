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
from support.svgd_oracles import LIMITS, too_far

from srunbook import simulate
from srunbook.signals import EXIT_STOPPED
from srunbook.svgd import saved_steps

pytest.importorskip("optax")

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.usefixtures("compiled_once")
ORACLES = ROOT / "tests" / "support" / "svgd_oracles.py"


@functools.cache
def oracles(how, processes, devices, counts):
    """Return what the oracles found: one row for each number of devices and precision."""
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
    """All exact answers come out in both precisions, on several devices and processes."""
    ranks = oracles(how, processes, devices, counts)

    assert len(ranks) == processes
    for rows in ranks:
        assert [(row["kind"], row["devices"]) for row in rows] == [(kind, count) for kind in LIMITS for count in counts]
        for row in rows:
            assert too_far(row) == [], row


@pytest.mark.full
@pytest.mark.timeout(1200)  # where it runs without the test above
def test_the_same_on_all_layouts():
    """A run with 13 particles, which no layout divides evenly, ends in the same place on all layouts."""
    ranks = [found for layout in ALL for found in oracles(*layout)]

    for kind, limit in LIMITS.items():
        sums = [row["errors"]["checksum"] for found in ranks for row in found if row["kind"] == kind]
        assert len(sums) == 4 + 2 + 4
        np.testing.assert_allclose(sums, sums[0], rtol=20 * limit)


def test_wrong_sign_is_seen():
    """Particles that attract each other, as in the existing software, fail at every exact answer with a repulsion."""
    ((row,),) = oracles("wrong-sign", 1, 1, (1,))

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


def test_stop_and_resume(program, tmp_path):
    """SIGTERM to one process: all save the same step, and go on to exactly the undisturbed end.

    On another layout sums are made in another order: one process goes on to the same end but for rounding, some units
    in the last place after 500 steps.
    """
    command = program(RUN + STOPPED)

    def run(folder, *more, nodes):
        arguments = [str(tmp_path / folder), str(tmp_path / f"{folder}-{nodes}.npy"), *more]
        return simulate.run([*command, *arguments], nodes=nodes, ntasks_per_node=1, env={"JAX_ENABLE_X64": "1"})

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
    assert resumed.dtype == "float64"
    np.testing.assert_array_equal(resumed, undisturbed)
    np.testing.assert_allclose(elsewhere, undisturbed, rtol=0, atol=1e-13)


TOGETHER = """
from srunbook.svgd import SVGDError
mine = info.process_id

def attempt(call):
    try:
        call()
    except SVGDError as error:
        sys.stdout.write(f"rejected {error}\\n")
        sys.stdout.flush()

attempt(lambda: sampler.run(jax.random.key(mine), 20 + mine, 25))
attempt(lambda: SVGD(log_density, log_likelihood=lambda x, rows: -jnp.sum((rows - x[0]) ** 2),
    data=np.arange(4.0) + mine, dim=2).run(key, 20, 25, checkpoint="unused" if mine == 0 else None))
outside = np.arange(1.0, 22.0)[:, None]
outside[17] = -0.5
attempt(lambda: SVGD(lambda x: 2 * jnp.log(x[0]) - x[0]).run(key, 21, 5, outside))
from srunbook.svgd import checkpoints
whole_load = checkpoints.ocp.load
checkpoints.ocp.load = lambda path: whole_load(path, {"else": 0} if mine and path.name == "20" else None)
sampler.run(key, 21, 20, every=10, checkpoint=sys.argv[1])
told = sampler.run(key, 21, 25, progress=True, every=10, checkpoint=sys.argv[1])
sys.stdout.write(f"ran {told.first_step} {told.steps}\\n")
sys.stdout.flush()
"""


def test_two_processes(program, tmp_path):
    """Both processes end with the same errors, continue after a step that both can read, and one of them reports."""
    command = [*program(RUN + TOGETHER), str(tmp_path / "saved"), "-"]
    result = simulate.run(command, nodes=2, env={"JAX_NUM_CPU_DEVICES": "2"})

    assert result.returncode == 0, result.failure
    first, second = said(result, "rejected")
    assert first == second
    assert [text.split(";")[0] for text in first[:2]] == [
        "process 1 was given other values than process 0: particles, key, initial particles",
        "process 1 was given other values than process 0: data, checkpoint",
    ]
    assert first[2].startswith(
        "step 1: 1 of 21 particles have no finite log density or score, first particle 17 at [-0.5]: log density nan"
    )
    assert said(result, "ran") == [["10 25"]] * 2
    reports = [re.findall(r"^step (\d+) of 25:", rank.output, re.MULTILINE) for rank in result.ranks]
    assert reports == [["20", "25"], []]


SLOW = """
def wander(x):
    return jax.lax.scan(lambda x, _: (x + 1e-30 * jnp.sin(x), None), x, length=2000)[0]

def log_density(x):  # process 2 computes the same in many more operations, all of them with the same program
    mine = jax.lax.optimization_barrier(jnp.int32(info.process_id))
    return -0.5 * jnp.sum(jax.lax.cond(mine == 2, wander, lambda x: x, x) ** 2)

result = SVGD(log_density, dim=2).run(key, 64, 30, every=10, timing_log=sys.argv[1])
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
