"""What the tests of the simulation share: programs to run, and the search for processes that were left behind."""

from __future__ import annotations

import contextlib
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

GONE_SECONDS = 2.0
"""How long after its end a simulation's processes may still be seen."""


class Survivors:
    """Finds what a test has started, by a tag in the environment or on the command line.

    Args:
        tag: The tag. It is unique, for other simulations may run on this machine.
    """

    def __init__(self, tag: str) -> None:
        self.tag = tag

    def find(self) -> dict[int, str]:
        """Maps each living process that carries the tag to its command line."""
        found = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                command = " ".join(process.cmdline())
                if self.tag in command or self.tag in process.environ().values():
                    found[process.pid] = command
        return found

    def none_within(self, seconds: float = GONE_SECONDS) -> bool:
        """Waits until there is none; False when there still is one after that time."""
        deadline = time.monotonic() + seconds
        while self.find():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True


@pytest.fixture
def survivors(monkeypatch: pytest.MonkeyPatch) -> Iterator[Survivors]:
    """Tags everything that the test starts, and kills at the end what is left of it."""
    tag = f"tag-{uuid.uuid4().hex}"
    monkeypatch.setenv("SRUNBOOK_TEST_TAG", tag)
    search = Survivors(tag)
    yield search
    for pid in search.find():
        with contextlib.suppress(psutil.Error):
            psutil.Process(pid).kill()


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], list[str]]:
    """Writes a Python program and returns the command that runs it."""

    def write(source: str, name: str = "program.py") -> list[str]:
        path = tmp_path / name
        path.write_text(textwrap.dedent(source))
        return [sys.executable, str(path)]

    return write
