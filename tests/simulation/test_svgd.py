"""SVGD on several devices and processes: exact answers, the same on each layout; stops and restarts."""

from __future__ import annotations

import functools
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from srunbook import simulate
from srunbook.checkpoint import EXIT_STOPPED, Checkpoints

pytest.importorskip("optax")

ORACLES = Path(__file__).with_name("svgd_oracles.py")

LIMITS = {"float32": 2e-5, "float64": 1e-11}
"""How far results may be from the exact ones, in units of the particles."""


@functools.cache
def oracles(how, processes, devices):
    """What the oracles found: one row for each number of devices, precision and exchange."""
    result = simulate.run(
        [sys.executable, "-W", "ignore", str(ORACLES), how],
        nodes=min(processes, 2),
        ntasks_per_node=max(1, processes // 2),
        env={"JAX_NUM_CPU_DEVICES": str(devices)},
        timeout=110,
    )
    assert result.returncode == 0, result.failure
    return [
        [json.loads(row) for row in re.findall(r"^oracle (.*)$", rank.output, re.MULTILINE)] for rank in result.ranks
    ]


def compared_with_exact(row):
    """Names of the results that are too far from the exact ones."""
    wrong = [
        name
        for name, error in row["errors"].items()
        if name not in ("checksum", "closing speed") and not error < LIMITS[row["kind"]]
    ]
    return wrong + ["closing speed"] * (not row["errors"]["closing speed"] < -0.01)


@pytest.mark.parametrize(("processes", "devices"), [(1, 4), (2, 1), (4, 1)])
def test_exact_answers(processes, devices):
    """All exact answers come out in both precisions, with both exchanges, on 1 to 4 devices and 1 to 4 processes."""
    ranks = oracles("right", processes, devices)

    counts = {1, 2, 3, 4} if processes == 1 else {processes}
    assert len(ranks) == processes
    for rows in ranks:
        assert {row["devices"] for row in rows} == counts
        assert len(rows) == 4 * len(counts)
        for row in rows:
            assert compared_with_exact(row) == [], row


def test_the_same_on_all_layouts():
    """A run with 13 particles, which no layout divides evenly, ends in the same place on all layouts."""
    ranks = [*oracles("right", 1, 4), *oracles("right", 2, 1), *oracles("right", 4, 1)]

    for kind, limit in LIMITS.items():
        sums = [row["errors"]["checksum"] for rows in ranks for row in rows if row["kind"] == kind]
        assert len(sums) == 2 * (4 + 2 + 4)
        np.testing.assert_allclose(sums, sums[0], rtol=20 * limit)


def test_wrong_sign_is_seen():
    """Particles that attract each other, as in the existing software, fail at every exact answer with a repulsion."""
    ((*rows,),) = oracles("wrong-sign", 1, 1)

    for row in rows:
        assert {"two particles settle", "direction", "repulsion", "closing speed"} <= set(compared_with_exact(row))


RUN = """
import os, signal, sys
from srunbook import initialize_distributed
info = initialize_distributed(timeout=60)
import jax, jax.numpy as jnp, numpy as np, optax
from srunbook.checkpoint import StopSignal
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
with StopSignal() as stop:
    count = 0
    real = stop.requested
    def requested(step):
        global count
        count += 1
        if count == 3 and info.process_id == 1 and len(sys.argv) > 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(step)
    stop.requested = requested
    result = sampler.run(key, 21, 2000, checkpoint=sys.argv[1], every=10, stop=stop)
    save(result)
    sys.stdout.write(f"said {result.first_step} {result.steps} {result.stopped}\\n")
    sys.stdout.flush()
    if result.stopped:
        stop.leave(requeue=False)
"""


def said(result, word):
    """What each rank said after a word."""
    return [re.findall(rf"^{word} (.*)$", rank.output, re.MULTILINE) for rank in result.ranks]


def test_stop_and_resume(program, tmp_path):
    """SIGTERM to one process: all save the same step, and one process goes on from there to the undisturbed end."""
    command = program(RUN + STOPPED)
    saved, end, undisturbed = (str(tmp_path / name) for name in ("saved", "end.npy", "undisturbed.npy"))
    stopped = simulate.run([*command, saved, end, "stop"], nodes=2, timeout=90)

    assert stopped.returncode == EXIT_STOPPED, stopped.failure
    ((first,), (second,)) = said(stopped, "said")
    assert first == second
    step = int(first.split()[1])
    assert first == f"0 {step} True"
    assert 0 < step < 2000
    assert Checkpoints(saved).steps()[-1] == step

    again = simulate.run([*command, saved, end], ntasks_per_node=1, timeout=90)
    assert again.returncode == 0, again.failure
    assert said(again, "said") == [[f"{step} 2000 False"]]
    whole = simulate.run([*command, str(tmp_path / "other"), undisturbed], nodes=2, timeout=90)
    assert whole.returncode == 0, whole.failure
    np.testing.assert_allclose(np.load(end), np.load(undisturbed), rtol=2e-3, atol=2e-3)


DIFFERENT = """
start = np.random.default_rng(info.process_id).normal(size=(20, 2))
sampler.run(key, 20, 5, start)
"""


def test_different_starts_are_refused(program):
    """Processes that start from different particles are told so, for nothing else would notice."""
    result = simulate.run([*program(RUN + DIFFERENT), "-", "-"], nodes=2, timeout=90)

    assert result.returncode == 1
    assert "SVGDError: process 1 starts from other particles" in result.output


SLOW = """
from srunbook.svgd import _run
real = _run._Clock._timed
def slowed(clock, *arguments):
    return real(clock, *arguments) + 1.0 * (info.process_id == 2)
_run._Clock._timed = slowed
result = sampler.run(key, 64, 30, every=10, timing_log=sys.argv[1])
sys.stdout.write(f"slow {[timing.process_id for timing in result.slow_processes]}\\n")
sys.stdout.flush()
"""


def test_timing_log(program, tmp_path):
    """The timing log has a line of each process for each report, and the slow process is named to all."""
    log = tmp_path / "times.jsonl"
    result = simulate.run([*program(RUN + SLOW), str(log), "-"], nodes=3, timeout=90)

    assert result.returncode == 0, result.failure
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(row["step"], row["process"]) for row in rows] == [(step, p) for step in (10, 20, 30) for p in range(3)]
    assert {row["host"] for row in rows} == {"127.0.0.1", "127.0.0.2", "127.0.0.3"}
    assert [answers[0] for answers in said(result, "slow")] == ["[2]"] * 3
