"""The benchmarks of SVGD: what they predict, whom they stop, and what they count."""

from __future__ import annotations

import importlib
import socket
import sys
from pathlib import Path

import pytest
from support.patience import PATIENCE

pytest.importorskip("jax")
pytest.importorskip("optax")

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch):
    """Import a program of bench/."""
    monkeypatch.syspath_prepend(BENCH)
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "1")  # they set it where it is not set
    return importlib.import_module


def test_prediction_of_a_step(bench):
    """The predicted step is the sum of scores, pairs, messages and bytes."""
    constants = bench("svgd_scaling").Constants(score_s=0.1, pair_s=1e-3, alpha_s=5.0, beta_s=1e-3)

    assert constants.step(100, 1) == pytest.approx(100 * 0.1 + 100 * 100 * 1e-3)
    assert constants.step(100, 4) == pytest.approx(25 * 0.1 + 25 * 100 * 1e-3 + 2 * 5.0 + 0.75 * 100 * 2 * 8 * 4 * 1e-3)


def test_what_speaks_against_a_prediction(bench, monkeypatch):
    """A prediction is doubted where CPUs are short, particles few, or a wait or a burst is much of the step."""
    scaling = bench("svgd_scaling")
    monkeypatch.setattr(scaling.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    setting = scaling.Setting("100mbit", 4, 0.45, (1, 2, 4), 1)

    def doubts(nodes, n, seconds, beta=0.0):
        return scaling.doubts(setting, scaling.Constants(seconds * nodes / n, 0.0, 0.0, beta), nodes, n)

    assert doubts(4, 4096, 2.0) == "yes"
    assert doubts(5, 4096, 2.0) == "no: 5 x 0.45 CPUs of 2"
    assert doubts(2, 4096, 0.5) == "no: a node may stand still for 55 ms of a step of 500 ms"
    assert doubts(1, 4096, 0.5) == "yes"
    assert doubts(2, 512, 2.0) == "no: 256 particles on a node, and 512 are the fewest of the fit"
    assert doubts(2, 4096, 1.9, 8e-7) == "no: 105 ms of bytes, of 2005 ms, may pass at once"


class Answering:
    """A package that gives prepared answers."""

    package, version = "other", ""

    def __init__(self, *answers):
        self.answers = list(answers)

    def ask(self, request, seconds):
        """Return the next answer."""
        return self.answers.pop(0)


@pytest.mark.parametrize(
    ("answers", "earlier", "limit", "samples"),
    [
        ([], {1024: 8000.0}, "120 s: 128 s or more, from n=1024", []),
        ([None], {}, "120 s: compiling", []),
        ([{"needed_GiB": 64.5, "version": "1"}], {}, "16 GiB: a step needs 64.5", []),
        ([{"error": "ModuleNotFoundError: No module named 'other'"}], {}, "not installed", []),
        ([{"needed_GiB": 1, "version": "1"}, None], {}, "120 s: stopped", []),
        ([{"needed_GiB": 1, "version": "1"}, {"error": "RESOURCE_EXHAUSTED: x"}], {}, "16 GiB: refused", []),
        ([{"needed_GiB": 1, "version": "1"}, {"ms": 20000.0}], {}, "", [20000.0]),
        ([{"needed_GiB": 1, "version": "1"}, {"ms": 2000.0}, *[{"ms": 1500.0}] * 3], {}, "", [1500.0] * 3),
        ([{"needed_GiB": 1, "version": "1"}, {"ms": 9.0}, *[{"ms": 1.0}] * 5], {}, "", [1.0] * 5),
    ],
)
def test_limits_of_a_package(bench, answers, earlier, limit, samples):
    """A package that needs too much is not run or stopped, and the limit that it hit is said."""
    speed = bench("svgd_speed")
    case = speed.Case.__new__(speed.Case)
    case.n, case.d, case.seconds = 4096, 8, 0.1
    peer = Answering(*answers)
    trial = speed.Trial(peer, case, earlier, late=False)
    for _ in range(6):
        trial.take(5)

    assert (trial.limit, trial.samples, peer.answers) == (limit, samples, [])


def test_a_package_that_hangs_is_killed(bench, monkeypatch, tmp_path):
    """A package that does not answer in time gives no answer, and its process is gone; a new one can be asked."""
    speed = bench("svgd_speed")
    (tmp_path / "ranks").mkdir()
    (tmp_path / "ranks" / "svgd_peers.py").write_text(
        "import json, sys, time\n"
        "for line in sys.stdin:\n"
        "    time.sleep(600 if 'hang' in line else 0)\n"
        "    print('noise')\n"
        "    print('answer {\"ms\": 1}', flush=True)\n"
    )
    monkeypatch.setattr(speed, "HERE", tmp_path)
    peer = speed.Peer("other", tmp_path)
    before = peer.ask({}, PATIENCE)
    process = peer._process
    hanging = peer.ask({"hang": True}, 0.3)
    after = peer.ask({}, PATIENCE)
    peer.end()

    assert (before, hanging, after) == ({"ms": 1}, None, {"ms": 1})
    assert process.returncode < 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_connections_are_counted(bench):
    """Both ends of a connection within a process count, and a socket that only listens is no connection."""
    devices = bench("svgd_devices")
    connections, sockets = devices.sockets()
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()),
        server.accept()[0],
    ):
        more = devices.sockets()

    assert (more[0] - connections, more[1] - sockets) == (2, 3)


def test_both_ways_to_start(bench):
    """Two processes start in both ways, and the benchmark gets its times from both."""
    start = bench("distributed_start")
    found = [start.sample(call, "as they come") for call in (start.JAX, start.OURS)]

    assert [sorted(sample) for sample in found] == [["start_ms"], ["of_which_import_ms", "start_ms"]]
    assert all(value > 0 for sample in found for value in sample.values())
