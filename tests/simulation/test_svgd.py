"""SVGD on several devices and processes: exact answers; stops and restarts."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from srunbook import simulate
from srunbook.signals import EXIT_STOPPED
from srunbook.svgd import saved_steps

pytest.importorskip("optax")

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.usefixtures("compiled_once")
ORACLES = ROOT / "tests" / "support" / "svgd_oracles.py"


LIMIT = 1e-11
"""How far results may be from the exact ones, in units of the particles."""


def errors(how, processes, devices):
    """Return on each rank how far each result is from the exact one."""
    result = simulate.run(
        [sys.executable, "-W", "ignore", str(ORACLES), how],
        nodes=processes,
        env={"JAX_NUM_CPU_DEVICES": str(devices)},
    )
    assert result.returncode == 0, result.failure
    rows = [re.findall(r"^oracle (.*)$", rank.output, re.MULTILINE) for rank in result.ranks]
    return [json.loads(row) for (row,) in rows]


@pytest.mark.parametrize("layout", [(2, 2), pytest.param((4, 1), marks=pytest.mark.full)])
def test_exact_answers(layout):
    """All exact answers come out on several devices and processes."""
    ranks = errors("right", *layout)

    assert len(ranks) == layout[0]
    assert [{name: error for name, error in row.items() if not error < LIMIT} for row in ranks] == [{}] * layout[0]


def test_wrong_sign_is_seen():
    """Particles that attract each other, as in the existing software, fail at every exact answer with a repulsion."""
    (row,) = errors("wrong-sign", 1, 1)

    wrong = {name for name, error in row.items() if not error < LIMIT}
    assert wrong == {"two particles settle", "repulsion", "closing speed", "run"}


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
sampler = SVGD(log_density, dim=2, optimizer=optax.adam(optax.cosine_decay_schedule(0.1, 60)))
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
    result = sampler.run(key, 21, 60, checkpoint=sys.argv[1], every=10, stop=stop)
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
    """SIGTERM to one process: all save the same step, and another layout goes on to the undisturbed end."""
    command = program(RUN + STOPPED)

    def run(folder, *more, nodes):
        arguments = [str(tmp_path / folder), str(tmp_path / f"{folder}.npy"), *more]
        return simulate.run([*command, *arguments], nodes=nodes, ntasks_per_node=1, env={"JAX_ENABLE_X64": "1"})

    stopped = run("saved", "stop", nodes=2)
    assert stopped.returncode == EXIT_STOPPED, stopped.failure
    ((first,), (second,)) = said(stopped, "said")
    assert first == second
    step = int(first.split()[1])
    assert first == f"0 {step} True"
    assert 0 < step < 60
    assert saved_steps(tmp_path / "saved")[-1] == step

    for result, begin in ((run("saved", nodes=1), step), (run("other", nodes=2), 0)):
        assert result.returncode == 0, result.failure
        assert {answer for (answer,) in said(result, "said")} == {f"{begin} 60 False"}
    resumed, undisturbed = (np.load(tmp_path / f"{name}.npy") for name in ("saved", "other"))
    assert resumed.dtype == "float64"
    np.testing.assert_allclose(resumed, undisturbed, rtol=0, atol=1e-9)  # sums are made in another order


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
