"""The room that checkpoints take: what is cleared away before a save, and what a full disk says."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess

import numpy as np
import pytest

from srunbook.checkpoint import CheckpointError, Checkpoints, _saving
from srunbook.checkpoint._directory import free_bytes

HOUR = 3600


def names(directory):
    """List what is in a directory."""
    return sorted(path.name for path in directory.iterdir())


def state(step):
    """Make a small state that tells its step."""
    return {"weight": np.full((4, 3), step, np.float32), "count": np.array(step)}


def large(step):
    """Make a state of which a disk of 256 KiB holds three."""
    return {"a": np.full(64 << 10, step, np.uint8)}


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path / "checkpoints")


@pytest.fixture(params=[False, True], ids=["now", "background"])
def background(request):
    return request.param


@pytest.fixture
def small_disk(tmp_path):
    """Mount a disk of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or not shutil.which("mount") or subprocess.run(mount, check=False).returncode:
        pytest.skip("only root mounts a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def full_disk(tmp_path):
    """Make a directory with room for little more than 128 KiB: a tmpfs, or a limit where none can be mounted."""
    folder = tmp_path / "full"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if os.geteuid() == 0 and shutil.which("mount") and subprocess.run(mount, check=False).returncode == 0:
        yield folder
        subprocess.run(["umount", str(folder)], check=True)
        return
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200 << 10, before[1]))
    yield folder
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def save_and_wait(checkpoints, step, tensors, background):
    checkpoints.save(step, tensors, background=background)
    checkpoints.wait()


@pytest.mark.parametrize("checked_before", [True, False])
def test_full_disk(full_disk, monkeypatch, background, checked_before):
    """On a full disk the error names the bytes needed and free, and the room that was taken is given back."""
    if not checked_before:
        monkeypatch.setattr(_saving.Save, "_check_space", lambda save: None)
    checkpoints = Checkpoints(full_disk)
    checkpoints.save(1, {"a": np.zeros(64 << 10, np.uint8)})
    big = {"a": np.zeros(1 << 20, np.uint8)}

    message = r"step 2 was not saved .*(No space left|File too large).*needs 1,048,\d{3} bytes, [\d,]+ bytes are free"
    for _ in range(2):
        with pytest.raises(CheckpointError, match=f"{message}; kept: step 1"):
            save_and_wait(checkpoints, 2, big, background)
    checkpoints.save(2, {"a": np.ones(64 << 10, np.uint8)})

    assert checkpoints.restore().step == 2
    assert names(full_disk) == ["step-0000000001", "step-0000000002"]


def test_killed_before_the_removal(small_disk, monkeypatch):
    """With room for `keep` + 1 checkpoints and as many there, the oldest goes before the next is written."""
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "_remove_old", lambda self: None)  # as if it were killed there
        for step in (1, 2, 3):
            again = Checkpoints(small_disk, keep=2)
            again.restore()
            again.save(step, large(step))
    assert names(small_disk) == ["step-0000000001", "step-0000000002", "step-0000000003"]

    again = Checkpoints(small_disk, keep=2)
    again.restore()
    for step in (4, 5):
        again.save(step, large(step))

    assert names(small_disk) == ["step-0000000004", "step-0000000005"]


def test_killed_within_a_save_that_filled_the_disk(small_disk):
    """An unfinished save that left no byte free is cleared away by the next, which finds room."""
    checkpoints = Checkpoints(small_disk, keep=1)
    checkpoints.save(1, large(1))
    partial = small_disk / "step-0000000002.0123456789abcdef.partial"
    partial.mkdir()
    with contextlib.suppress(OSError), (partial / "part-00000.safetensors").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    assert free_bytes(small_disk) == 0

    checkpoints.save(2, large(2))

    assert names(small_disk) == ["step-0000000002"]


def test_a_damaged_one_gives_way(small_disk, caplog):
    """What was set aside for a look is removed when there is no room for the next checkpoint, and not before."""
    checkpoints = Checkpoints(small_disk, keep=2)
    for step in (1, 2):
        checkpoints.save(step, large(step))
    (small_disk / "step-0000000002" / "manifest.json").write_text("{}")
    checkpoints = Checkpoints(small_disk, keep=2)
    assert checkpoints.restore().step == 1

    checkpoints.save(2, large(2))
    assert names(small_disk) == ["damaged-step-0000000002", "step-0000000001", "step-0000000002"]
    checkpoints.save(3, large(3))

    assert names(small_disk) == ["step-0000000002", "step-0000000003"]
    assert "damaged-step-0000000002 is removed, to make room" in caplog.text


def test_leftovers_are_cleared(checkpoints):
    """The next save clears away what interrupted saves and removals have left, and nothing else."""
    checkpoints.save(1, state(1))
    for name in ("step-0000000002.partial", "step-0000000000.removing", "step-notes.partial"):
        (checkpoints.directory / name).mkdir()
        (checkpoints.directory / name / "part-00000.safetensors").write_bytes(b"torn")
    checkpoints.save(2, state(2))

    assert names(checkpoints.directory) == ["step-0000000001", "step-0000000002", "step-notes.partial"]


def test_what_processes_left_for_each_other(checkpoints):
    """What a killed restore has left is cleared away when it is old; before that a job might be reading it."""
    checkpoints.save(1, state(1))
    (checkpoints.directory / ".meet-0123456789abcdef").mkdir()
    for name in (".restore-0123.json", "..restore-0123.json.77", ".mine"):
        (checkpoints.directory / name).touch()
    checkpoints.save(2, state(2))
    assert len(names(checkpoints.directory)) == 6
    for path in checkpoints.directory.glob(".*"):
        os.utime(path, (0, path.stat().st_mtime - 2 * HOUR))
    checkpoints.save(3, state(3))

    assert [name for name in names(checkpoints.directory) if name.startswith(".")] == [".mine"]


@pytest.mark.parametrize("kind", ["file", "link", "pipe", "directory"])
@pytest.mark.parametrize(
    "name", ["step-0000000009.partial", "step-0000000009.removing", "step-0000000001", ".restore.json"]
)
def test_what_is_no_save(checkpoints, tmp_path, kind, name):
    """Whatever has the name of a leftover or an old step is removed; nothing that it points to is."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").touch()
    checkpoints.directory.mkdir()
    path = checkpoints.directory / name
    {
        "file": path.touch,
        "link": lambda: path.symlink_to(tmp_path / "elsewhere"),
        "pipe": lambda: os.mkfifo(path),
        "directory": path.mkdir,
    }[kind]()
    os.utime(path, (0, 0), follow_symlinks=False)
    for step in (2, 3, 4, 5):
        checkpoints.save(step, state(step))

    assert checkpoints.steps() == [3, 4, 5]
    assert names(checkpoints.directory) == [f"step-000000000{step}" for step in (3, 4, 5)]
    assert names(tmp_path / "elsewhere") == ["file"]


def test_what_cannot_be_removed(checkpoints, monkeypatch, caplog):
    """What another user has left is named in a warning, and does not keep a job from saving."""
    (checkpoints.directory / "step-0000000001.partial").mkdir(parents=True)

    def refuse(path):
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(shutil, "rmtree", refuse)
    for step in (1, 2, 3, 4):
        checkpoints.save(step, state(step))

    assert checkpoints.steps() == [2, 3, 4]
    assert "step-0000000001.partial could not be removed: [Errno 1] Operation not permitted" in caplog.text


def test_names_that_are_no_steps(checkpoints):
    """Names that only look like steps are not taken for any."""
    checkpoints.save(1, state(1))
    for name in ("step-00000000002", "step-2", "step-000000000\N{ARABIC-INDIC DIGIT THREE}", "step-0000000004\n"):
        (checkpoints.directory / name).mkdir()
    (checkpoints.directory / f"step-{'9' * 200}x").mkdir()

    assert checkpoints.steps() == [1]
    assert checkpoints.restore().step == 1


def test_damaged_ones_are_not_overwritten(checkpoints):
    """A damaged checkpoint is set aside under a name that is free, whichever were deleted before."""
    checkpoints.save(1, state(1))
    for name in ("damaged-step-0000000002", "damaged-step-0000000002.2"):
        (checkpoints.directory / name).mkdir()
        (checkpoints.directory / name / "kept").touch()
    checkpoints.save(2, state(2))
    (checkpoints.directory / "step-0000000002" / "manifest.json").write_text("{}")
    again = Checkpoints(checkpoints.directory)
    again.restore()
    again.save(2, state(2))

    assert [name for name in names(checkpoints.directory) if name.startswith("damaged")] == [
        "damaged-step-0000000002",
        "damaged-step-0000000002.1",
        "damaged-step-0000000002.2",
    ]
