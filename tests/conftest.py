"""Options and fixtures that all tests share."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import settings
from support.inputs import Inputs, installed_version
from support.patience import PATIENCE
from support.published import boot, cluster_name
from support.reader import Reader

from recordings.checking import check
from srunbook import cluster
from srunbook.cluster import Specification, State
from srunbook.cluster._roots import find_root
from srunbook.cluster._sections import SUITES

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[1]
PASSED = ROOT / "tests" / "passed.txt"
"""Inputs with which tests of programs and job scripts have passed; gate.py writes it."""

STOOD = ROOT / "build" / "stood.txt"
"""Tests that were left out because of that."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of all tiers."""
    parser.addoption(
        "--record", action="store_true", help="write what a run printed beside its program, in place of comparing it"
    )
    known = [*cluster.GENERATIONS, cluster.NEWEST, "all"]
    parser.addoption("--slurm", default="22.05", choices=known, help="generation of Slurm, or all")
    parser.addoption("--cluster", default=f"t{os.getpid()}", help="what the names of the clusters begin with")
    parser.addoption("--wheel", type=Path, help="a wheel to test, in place of one that the tests build")
    parser.addoption("--full", action="store_true", help="also run the longer forms")
    parser.addoption(
        "--changed",
        type=int,
        metavar="DAY",
        help="leave out tests of programs and job scripts that passed with the same inputs, but for a seventh of them",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark `full` known; let programs that tests start hear signals, also where these run under nohup."""
    config.addinivalue_line("markers", "full: a repetition, a further layout or size; only `--full` runs it")
    settings.register_profile("chosen", max_examples=100 if config.getoption("--full") else 20, deadline=None)
    settings.load_profile("chosen")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only `--full` runs and, with `--changed`, what stands; note the inputs of the others."""
    chosen = [item for item in items if config.getoption("--full") or not item.get_closest_marker("full")]
    day = config.getoption("--changed")
    standing = find_standing(chosen)
    if day is not None:
        standing = [item for item in standing if zlib.crc32(item.nodeid.encode()) % 7 != day % 7]
        STOOD.parent.mkdir(exist_ok=True)
        STOOD.write_text("".join(f"{item.nodeid}\n" for item in standing), encoding="utf-8")
        chosen = [item for item in chosen if item not in standing]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def find_standing(items: list[pytest.Item]) -> list[pytest.Item]:
    """Note the inputs of each test that runs programs or jobs; return those that have passed with the same inputs."""
    inputs = Inputs(ROOT, installed_version)
    passed = {*PASSED.read_text(encoding="utf-8").splitlines()} if PASSED.exists() else set()
    slurm = {name: root.slurm for name, suite in SUITES.items() if (root := find_root(suite))}
    found = []
    for item in items:
        if not item.nodeid.startswith(("tests/simulation/", "tests/cluster/")):
            continue
        case = getattr(item, "callspec", None)
        values = case.params if case else {}
        place = slurm.get(str(values.get("generation", item.config.getoption("--slurm"))), "")
        text = re.sub(" at 0x[0-9a-f]+", " at 0x", repr(values).replace(f"{ROOT}/", ""))
        name = item.nodeid.split("::")[1].partition("[")[0]
        digest = inputs.of(item.path, name, text if case else "", [place] if "cluster" in item.nodeid else [])
        item.user_properties.append(("inputs", digest))
        if f"{digest} {item.nodeid}" in passed:
            found.append(item)
    return found


def pytest_sessionstart(session: pytest.Session) -> None:
    """Take down the clusters of test runs that were killed; those of runs that go on stay."""
    if hasattr(session.config, "workerinput") or os.geteuid() != 0:
        return
    for name in cluster.names():
        run = re.match(r"t(\d+)-", name)
        if run and not Path(f"/proc/{run[1]}").exists():
            cluster.down(name)


@contextmanager
def elbow_room(folder: Path, *, alone: bool) -> Iterator[None]:
    """Wait until a test may run, beside others or alone; all workers of this test run share the folder."""
    with (folder / "door").open("w") as door, (folder / "room").open("w") as room:
        fcntl.flock(door, fcntl.LOCK_EX)  # who waits to be alone keeps the door shut, so that nobody overtakes
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run tests marked `alone` while no other worker has a test; waiting for that is not part of their time limit."""
    if not hasattr(item.config, "workerinput"):
        return (yield)
    with elbow_room(item.config._tmp_path_factory.getbasetemp().parent, alone=bool(item.get_closest_marker("alone"))):
        return (yield)


def generations(config: pytest.Config) -> list[str]:
    """Return the generations that the tests of the cluster run on."""
    chosen = config.getoption("--slurm")
    return list(cluster.GENERATIONS) if chosen == "all" else [chosen]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on every chosen generation, one after the other, unless it chooses itself."""
    chosen = any("generation" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "generation" in metafunc.fixturenames and "script" not in metafunc.fixturenames and not chosen:
        metafunc.parametrize("generation", generations(metafunc.config), scope="session")


@pytest.fixture(scope="session")
def slurm(generation: str, pytestconfig: pytest.Config) -> Iterator[State]:
    """Boot a cluster of four nodes."""
    name = cluster_name(pytestconfig, generation)
    cluster.down(name)
    state = boot(Specification(name=name, slurm=generation))
    yield state
    cluster.down(name)


@pytest.fixture
def as_user(slurm: State) -> Callable[..., str]:
    """Run a command as the ordinary user and return what it said; it has to succeed."""

    def run(*command: str, user: str = cluster.USER) -> str:
        result = cluster.capture(slurm, command, user=user)
        assert result.returncode == 0, f"{command}: {result.returncode}\n{result.stdout}{result.stderr}"
        return result.stdout

    return run


@pytest.fixture(scope="session")
def until() -> Callable[[Callable[[], T]], T]:
    """Poll until a condition holds, and return what it gave."""

    def poll(condition: Callable[[], T]) -> T:
        deadline = time.monotonic() + PATIENCE
        while not (value := condition()):
            assert time.monotonic() < deadline, f"did not come about within {PATIENCE} s"
            time.sleep(0.1)
        return value

    return poll


@pytest.fixture
def healed(slurm: State, until: Callable[[Callable[[], object]], object]) -> Iterator[State]:
    """Return the cluster; heal it after the test, and wait until all nodes are idle again."""
    yield slurm
    cluster.faults.heal(slurm)
    cluster.capture(slurm, ["scancel", f"--user={cluster.USER}"], user=None)
    until(lambda: set(cluster.node_states(slurm).values()) == {"idle"})

    assert cluster.running_state(slurm.specification.name).faults == []


@pytest.fixture
def recorded(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Compare a run with the recording beside its source or, with `--record`, write that."""
    again = f"python -m pytest '{request.node.nodeid}'"
    return partial(check, record=request.config.getoption("--record"), again=again)


@pytest.fixture
def reader(tmp_path: Path, recorded: Callable[..., None]) -> Reader:
    """Return somebody who saves one program and runs it."""
    folder = tmp_path / "saved"
    folder.mkdir()
    return Reader(folder, recorded)


@pytest.fixture(scope="session")
def wheel(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel that was given, or else build the source distribution, and the wheel from that."""
    if given := pytestconfig.getoption("--wheel"):
        return Path(given).resolve()
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "uv", "build", "--quiet", "--offline", "--no-build-isolation", "--python"]
    subprocess.run([*build, sys.executable, "--out-dir", str(folder), str(ROOT)], check=True)
    return next(folder.glob("srunbook-*.whl"))
