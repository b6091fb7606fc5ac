"""Options and fixtures that all tests share."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from support import hypothesis_profiles
from support.published import boot, cluster_name
from support.reader import Reader

from srunbook import cluster
from srunbook.cluster import Specification, State

T = TypeVar("T")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of all tiers."""
    parser.addoption(
        "--record", action="store_true", help="write what a run printed beside its program, in place of comparing it"
    )
    known = [*cluster.GENERATIONS, cluster.NEWEST, "all"]
    parser.addoption("--slurm", default="22.05", choices=known, help="generation of Slurm, or all")
    parser.addoption("--cluster", default="tier", help="what the names of the clusters begin with")
    parser.addoption("--full", action="store_true", help="also run the longer forms")


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark `full` known; let programs that tests start hear signals, also where these run under nohup."""
    config.addinivalue_line("markers", "full: a repetition, a further layout or size; only `--full` runs it")
    hypothesis_profiles.load(full=config.getoption("--full"))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only `--full` runs."""
    if config.getoption("--full"):
        return
    longer = [item for item in items if item.get_closest_marker("full")]
    if longer:
        items[:] = [item for item in items if not item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=longer)


def generations(config: pytest.Config) -> list[str]:
    """Return the generations that the tests of the cluster run on."""
    chosen = config.getoption("--slurm")
    return list(cluster.GENERATIONS) if chosen == "all" else [chosen]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on every chosen generation, one after the other."""
    if "slurm" in metafunc.fixturenames and "script" not in metafunc.fixturenames:
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

    def run(*command: str, user: str = cluster.USER, timeout: float = 60) -> str:
        result = cluster.capture(slurm, command, user=user, timeout=timeout)
        assert result.returncode == 0, f"{command}: {result.returncode}\n{result.stdout}{result.stderr}"
        return result.stdout

    return run


@pytest.fixture(scope="session")
def until() -> Callable[[Callable[[], T], float], T]:
    """Poll until a condition holds, for so many seconds at most, and return what it gave."""

    def poll(condition: Callable[[], T], seconds: float) -> T:
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            assert time.monotonic() < deadline, f"did not come about within {seconds} s"
            time.sleep(0.1)
        return value

    return poll


@pytest.fixture
def healed(slurm: State, until: Callable[[Callable[[], object], float], object]) -> Iterator[State]:
    """Return the cluster; heal it after the test, and wait until all nodes are idle again."""
    yield slurm
    cluster.faults.heal(slurm)
    cluster.capture(slurm, ["scancel", f"--user={cluster.USER}"], user=None)
    until(lambda: set(cluster.status(slurm.specification.name).values()) == {"idle"}, 60)

    assert cluster.running_state(slurm.specification.name).faults == []


@pytest.fixture
def reader(tmp_path: Path, request: pytest.FixtureRequest) -> Reader:
    """Return somebody who saves one program and runs it."""
    folder = tmp_path / "saved"
    folder.mkdir()
    return Reader(folder, bool(request.config.getoption("--record")), request.node.nodeid)
