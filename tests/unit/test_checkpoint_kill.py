"""A save that is killed at any of its calls to the system leaves a whole checkpoint: the new one or the one before."""

from __future__ import annotations

import signal
import subprocess
import sys

import numpy as np
import pytest

from srunbook.checkpoint import Checkpoints, _manifest

PROGRAM = """
import os, signal, sys
import numpy as np
from srunbook.checkpoint import Checkpoints

directory, kill_at, torn = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "torn"
background = sys.argv[4] == "background"
count = 0

def counting(name):
    real = getattr(os, name)
    def counted(*arguments, **options):
        global count
        if name == "open" and not arguments[1] & os.O_CREAT:
            return real(*arguments, **options)
        count += 1
        if count == kill_at:
            if torn and name == "write":
                real(arguments[0], arguments[1][: len(arguments[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)
    setattr(os, name, counted)

for name in ("open", "write", "fsync", "rename", "unlink", "mkdir", "rmdir"):
    counting(name)
checkpoints = Checkpoints(directory, keep=2)
checkpoints.restore()
state = {name: np.full((50, 50), 30.0) for name in "ab"}
checkpoints.save(30, state, {"step": 30}, background=background)
checkpoints.wait()
print(count)
"""


def run(directory, kill_at, torn="whole", background="now"):
    """Saves step 30 in a process that is killed before its n-th writing call; 0 for none."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(directory), str(kill_at), torn, background],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def directory(tmp_path):
    """A directory with two checkpoints."""
    return saved(tmp_path / "0")


def saved(directory):
    """Saves steps 10 and 20."""
    checkpoints = Checkpoints(directory, keep=2)
    for step in (10, 20):
        checkpoints.save(step, {name: np.full((50, 50), float(step)) for name in "ab"}, {"step": step})
    return directory


def is_right(restored):
    """Whether a checkpoint is that of one step in all its parts."""
    return restored.metadata == {"step": restored.step} and all(
        np.all(restored.tensors[name] == restored.step) for name in "ab"
    )


def points(directory):
    """Number of calls at which a save can be killed."""
    done = run(directory, 0)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize("background", ["now", "background"])
def test_killed_at_every_call(tmp_path, background, caplog):
    """Killed at each write, fsync, rename, mkdir and unlink, the one before is whole until the new one is."""
    count = points(saved(tmp_path / "0"))
    restored_steps = []
    for kill_at in range(1, count + 1):
        directory = saved(tmp_path / str(kill_at))
        assert run(directory, kill_at, "torn", background).returncode == -signal.SIGKILL
        checkpoints = Checkpoints(directory, keep=2)
        restored = checkpoints.restore()
        assert is_right(restored), f"killed at call {kill_at}"
        restored_steps.append(restored.step)
        checkpoints.save(40, restored.tensors)
        assert checkpoints.steps() == [20 if restored.step == 20 else 30, 40], f"killed at call {kill_at}"
        assert len(list(directory.iterdir())) == 2, f"killed at call {kill_at}"

    assert count > 20
    assert restored_steps == sorted(restored_steps)
    assert set(restored_steps) == {20, 30}
    assert not caplog.records


def test_written_in_place(directory, monkeypatch):
    """A file overwritten in place and torn halfway is a mix of two steps: seen with checksums, loaded without."""
    path = directory / "step-0000000020" / "part-00000.safetensors"
    old = path.read_bytes()
    new = old.replace(np.float64(20).tobytes(), np.float64(30).tobytes())
    path.write_bytes(new[: len(new) // 2] + old[len(new) // 2 :])

    assert Checkpoints(directory).restore().step == 10
    monkeypatch.setattr(_manifest, "agrees", lambda found, written: True)
    assert not is_right(Checkpoints(directory).restore())
