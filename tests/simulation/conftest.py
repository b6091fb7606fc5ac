"""What the tests of the simulation share: programs to run, and the search for processes that were left behind."""

from __future__ import annotations

import contextlib
import importlib
import sys
import tempfile
import textwrap
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import psutil
import pytest
from support.compile_cache import share_compile_cache
from support.preloaded import preloaded

collect_ignore = ["foreign"]
"""Somebody else's program, which has no doctests."""


class Survivors:
    """Find what a test has started, by a tag in the environment or on the command line.

    Args:
        tag: The tag. It is unique, for other simulations may run on this machine.
    """

    def __init__(self, tag: str) -> None:
        self.tag = tag

    def find(self) -> dict[int, str]:
        """Map each living process that carries the tag to its command line."""
        found = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                command = " ".join(process.cmdline())
                if self.tag in command or self.tag in process.environ().values():
                    found[process.pid] = command
        return found


@pytest.fixture(scope="session")
def compiled_once(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let the programs that tests start share what JAX compiles; not where they are recorded, for that takes time."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.config.getoption("--record"):
            share_compile_cache(patch, tmp_path_factory.mktemp("compiled"))
        yield


@pytest.fixture(scope="session")
def llama() -> Iterator[ModuleType]:
    """Import the model of the programs that train a Llama."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "examples" / "does_not_fit"))
        yield importlib.import_module("llama")


@pytest.fixture
def survivors(monkeypatch: pytest.MonkeyPatch) -> Iterator[Survivors]:
    """Tag everything that the test starts, and kill at the end what is left of it."""
    tag = f"tag-{uuid.uuid4().hex}"
    monkeypatch.setenv("SRUNBOOK_TEST_TAG", tag)
    search = Survivors(tag)
    yield search
    for pid in search.find():
        with contextlib.suppress(psutil.Error):
            psutil.Process(pid).kill()


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], list[str]]:
    """Write a Python program and return the command that runs it."""

    def write(source: str, name: str = "program.py") -> list[str]:
        path = tmp_path / name
        path.write_text(textwrap.dedent(source))
        return [sys.executable, str(path)]

    return write


@pytest.fixture(scope="session")
def forked_python(pytestconfig: pytest.Config) -> Iterator[Path]:
    """Give an interpreter that has imported torch and Lightning; with --full and --record it is the plain one."""
    if pytestconfig.getoption("--full") or pytestconfig.getoption("--record"):
        yield Path(sys.executable)
        return
    with tempfile.TemporaryDirectory() as folder, preloaded(Path(folder)) as python:
        yield python


@pytest.fixture(scope="module")
def quick_start(forked_python: Path) -> Iterator[None]:
    """Let everything that the tests of a module run start from the interpreter of `forked_python`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(forked_python))
        yield
