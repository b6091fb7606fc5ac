"""A save that is killed at any of its calls to the system leaves a whole checkpoint: the new one or the one before."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from srunbook.checkpoint import Checkpoints, _manifest

PROGRAM = """
import json, os, signal, sys, traceback
import numpy as np
from srunbook.checkpoint import Checkpoints

place, torn = sys.argv[1], sys.argv[2] == "torn"
background = sys.argv[3] == "background"
count = 0

def counting(name, kill_at):
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

def save(kill_at):
    for name in ("open", "write", "fsync", "rename", "unlink", "mkdir", "rmdir"):
        counting(name, kill_at)
    checkpoints = Checkpoints(os.path.join(place, str(kill_at)), keep=2)
    checkpoints.restore()
    state = {name: np.full((50, 50), 30.0) for name in "ab"}
    checkpoints.save(30, state, {"step": 30}, background=background)
    checkpoints.wait()
    if not kill_at:
        print(count, flush=True)

# Each save in a process of its own; forking spares it the start of an interpreter.
statuses = []
for kill_at in map(int, sys.argv[4:]):
    child = os.fork()
    if not child:
        try:
            save(kill_at)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(statuses))
"""


def run(place, kills, torn="whole", background="now"):
    """Save step 30 in processes that are killed before their n-th writing call; 0 for none.

    Args:
        place: The folder with a directory for each of them, named by its number.
        kills: The numbers.
        torn: Whether the call that is killed is a write that was done to its half: `torn` or `whole`.
        background: How to save: `background` or `now`.

    Returns:
        What the program printed: the number of calls of a save that is not killed, then all exit statuses.
    """
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(place), torn, background, *map(str, kills)],
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def directory(tmp_path):
    """Make a directory with two checkpoints."""
    return saved(tmp_path / "0")


def saved(directory):
    """Save steps 10 and 20."""
    checkpoints = Checkpoints(directory, keep=2)
    for step in (10, 20):
        checkpoints.save(step, {name: np.full((50, 50), float(step)) for name in "ab"}, {"step": step})
    return directory


def is_right(restored):
    """Return whether a checkpoint is that of one step in all its parts."""
    return restored.metadata == {"step": restored.step} and all(
        np.all(restored.tensors[name] == restored.step) for name in "ab"
    )


@pytest.mark.parametrize("background", ["now", pytest.param("background", marks=pytest.mark.full)])
def test_killed_at_every_call(directory, tmp_path, background, caplog):
    """Killed at each write, fsync, rename, mkdir and unlink, the one before is whole until the new one is."""
    template = saved(tmp_path / "template")
    count, _ = run(tmp_path, [0])
    kills = range(1, count + 1)
    for kill_at in kills:
        shutil.copytree(template, tmp_path / str(kill_at))
    (statuses,) = run(tmp_path, kills, "torn", background)
    restored_steps = []
    for kill_at in kills:
        place = tmp_path / str(kill_at)
        checkpoints = Checkpoints(place, keep=2)
        restored = checkpoints.restore()
        assert is_right(restored), f"killed at call {kill_at}"
        restored_steps.append(restored.step)
        checkpoints.save(40, restored.tensors)
        assert checkpoints.steps() == [20 if restored.step == 20 else 30, 40], f"killed at call {kill_at}"
        assert len(list(place.iterdir())) == 2, f"killed at call {kill_at}"

    assert count > 20
    assert statuses == [-signal.SIGKILL] * count
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
