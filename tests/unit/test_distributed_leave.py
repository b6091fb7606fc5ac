"""How a process leaves JAX's processes."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from srunbook.distributed import _start


@pytest.fixture
def calls(monkeypatch):
    """Return what is called, in its order, by a process that leaves."""
    made = []
    monkeypatch.setattr(_start._STATE, "ended", False)
    jax = SimpleNamespace(distributed=SimpleNamespace(shutdown=lambda: made.append("shutdown of JAX")))
    monitor = SimpleNamespace(pid=os.getpid(), leave=lambda: made.append("leave the monitor"))
    return made, lambda: _start._leave(jax, monitor)


def test_jax_waits_before_the_monitor_is_left(calls):
    """JAX's shutdown, which waits for all processes, comes first: until then the monitor tells of those that die."""
    made, leave = calls
    leave()

    assert made == ["shutdown of JAX", "leave the monitor"]


def test_a_process_leaves_once(calls):
    """A second call does nothing."""
    made, leave = calls
    leave()
    leave()

    assert len(made) == 2
