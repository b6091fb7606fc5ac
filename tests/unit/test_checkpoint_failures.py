"""Checkpoints of one process when something goes wrong: disks, damage, forgery, and the end of the program."""

from __future__ import annotations

import errno
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from srunbook.checkpoint import CheckpointError, Checkpoints, _files


def names(directory):
    """List what is in a directory."""
    return sorted(path.name for path in directory.iterdir())


def state(step):
    """Make a small state that tells its step."""
    return {"weight": np.full((4, 3), step, np.float32), "count": np.array(step)}


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path / "checkpoints")


@pytest.fixture(params=[False, True], ids=["now", "background"])
def background(request):
    return request.param


@pytest.mark.parametrize("how", ["wait", "save", "restore"])
def test_background_errors(checkpoints, monkeypatch, how):
    """The error of a save in the background is raised once, by the next call; the next save succeeds."""
    checkpoints.save(1, state(1))
    with monkeypatch.context() as patch:
        patch.setattr(_files, "write_part", refuse_to_write)
        checkpoints.save(2, state(2), background=True)
        call = {"wait": (), "save": (3, state(3)), "restore": ()}[how]
        with pytest.raises(CheckpointError, match=r"step 2 was not saved .*Input/output error; kept: step 1"):
            getattr(checkpoints, how)(*call)
    checkpoints.wait()
    checkpoints.save(3, state(3))

    assert checkpoints.steps() == [1, 3]


def refuse_to_write(path, *arguments):
    raise OSError(errno.EIO, "Input/output error", str(path))


EXITS = {
    "end": ("", 0),
    "exit": ("raise SystemExit(3)", 3),
    "exception": ("raise RuntimeError('a bug after the save')", 1),
}


@pytest.mark.parametrize("how", EXITS)
def test_program_end_waits(tmp_path, how):
    """However a program ends by itself, a save in the background is completed first."""
    line, status = EXITS[how]
    program = f"""
import time, numpy as np
from srunbook.checkpoint import Checkpoints, _files
write = _files.write_part
_files.write_part = lambda *arguments: (time.sleep(0.3), write(*arguments))[1]
Checkpoints({str(tmp_path)!r}).save(1, {{"a": np.arange(5)}}, background=True)
{line}
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)

    assert done.returncode == status
    assert np.array_equal(Checkpoints(tmp_path).restore().tensors["a"], np.arange(5))


def test_program_end_tells_of_a_failed_save(tmp_path):
    """A save in the background that fails while the program ends says so on standard error."""
    program = f"""
import time, numpy as np
from srunbook.checkpoint import Checkpoints, _files
def refuse(*arguments):
    time.sleep(0.3)
    raise OSError(5, "Input/output error")
_files.write_part = refuse
Checkpoints({str(tmp_path)!r}).save(1, {{"a": np.arange(5)}}, background=True)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)

    assert "step 1 was not saved, and the program ends: [Errno 5] Input/output error" in done.stderr


@pytest.fixture
def forbidden():
    """Make a directory that may not be written, outside of the folders of pytest, which only their owner enters."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        folder = Path(place) / "forbidden"
        folder.mkdir()
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o755)


def test_unwritable_directory(forbidden):
    """A directory that cannot be written is named, with the reason."""
    program = f"""
import os, numpy as np
from srunbook.checkpoint import CheckpointError, Checkpoints
if os.geteuid() == 0:
    os.seteuid(65534)  # root may write anywhere; this process becomes somebody else, and stays so
try:
    Checkpoints({str(forbidden)!r}).save(1, {{"a": np.zeros(3)}})
except CheckpointError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)

    assert done.stdout.startswith(f"step 1 was not saved in {forbidden}: ")
    assert done.stdout.endswith("Permission denied; there is no earlier checkpoint\n")


def test_directory_that_is_a_file(tmp_path):
    """A file in the place of the directory is named, for a save and for a restore."""
    (tmp_path / "file").touch()
    checkpoints = Checkpoints(tmp_path / "file")

    with pytest.raises(CheckpointError, match="step 1 was not saved"):
        checkpoints.save(1, state(1))
    with pytest.raises(CheckpointError, match="file cannot be read: Not a directory"):
        checkpoints.restore()


def test_damaged_ones_are_set_aside(checkpoints, caplog):
    """Training goes on from the older checkpoint, in the same directory, and what was damaged is kept for a look."""
    for step in (1, 2, 3):
        checkpoints.save(step, state(step))
    for step in (2, 3):
        (checkpoints.directory / f"step-000000000{step}" / "manifest.json").write_text("{}")
    again = Checkpoints(checkpoints.directory)
    restored = again.restore()
    again.save(2, state(2))

    assert restored.step == 1
    assert "step 3 is damaged and is passed over" in caplog.text
    assert "step-0000000002 is damaged; it was set aside as damaged-step-0000000002" in caplog.text
    assert again.steps() == [1, 2]
    assert again.restore().step == 2
    assert sorted(path.name for path in again.directory.glob("damaged-*")) == [
        "damaged-step-0000000002",
        "damaged-step-0000000003",
    ]


class Trap:
    """Leaves a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_planted_pickle_is_never_opened(checkpoints, tmp_path, monkeypatch):
    """A pickle in the place of any file of a checkpoint, or beside them, is not unpickled."""
    sprung = tmp_path / "sprung"
    planted = pickle.dumps(Trap(sprung))
    monkeypatch.setattr(pickle, "loads", None)
    monkeypatch.setattr(pickle, "load", None)
    monkeypatch.setattr(pickle, "Unpickler", None)
    checkpoints.save(1, state(1))
    checkpoints.save(2, state(2))
    folder = checkpoints.directory / "step-0000000002"

    (folder / ".metadata").write_bytes(planted)
    assert checkpoints.restore().step == 2
    for name in names(folder):
        kept = (folder / name).read_bytes()
        (folder / name).write_bytes(planted)
        assert checkpoints.restore().step == (2 if name in (".metadata", "save.json") else 1)
        (folder / name).write_bytes(kept)
    assert not sprung.exists()


def test_the_trap_works(tmp_path):
    """The trap of the test above is sprung by whoever unpickles it."""
    pickle.loads(pickle.dumps(Trap(tmp_path / "sprung")))

    assert (tmp_path / "sprung").exists()


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
@pytest.mark.parametrize("name", ["manifest.json", "part-00000.safetensors"])
def test_what_is_no_file(checkpoints, tmp_path, kind, name):
    """A link, a pipe or a directory in the place of a file is not followed, waited for or read."""
    checkpoints.save(1, state(1))
    checkpoints.save(2, state(2))
    path = checkpoints.directory / "step-0000000002" / name
    path.rename(tmp_path / "moved")
    if kind == "link":
        path.symlink_to(tmp_path / "moved")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()

    assert checkpoints.restore().step == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["files"][0].update(name="../part-00000.safetensors"), "expected a name like"),
        (lambda c: c["files"][0].update(name="/etc/passwd"), "expected a name like"),
        (lambda c: c["tensors"]["weight"].update(shape=[10**12, 3]), "elements of"),
        (lambda c: c["tensors"]["weight"].update(shape=[-4, -3]), "whole number from 0"),
        (lambda c: c["tensors"]["weight"].update(dtype="object"), "unknown type"),
        (lambda c: c["files"][0].update(size=8), "its pieces need"),
        (lambda c: c["files"][0]["pieces"].pop(), "elements of"),
        (lambda c: c["files"][0]["pieces"][0].update(start=[1, 0]), "leaves"),
        (lambda c: c["files"][0]["pieces"][0].update(tensor="other"), "not listed"),
        (lambda c: c.update(format="other"), "not 'srunbook checkpoint'"),
        (lambda c: c.pop("files"), "does not describe"),
        (lambda c: c.update(step=3), "belongs to step 3"),
    ],
)
def test_a_forged_manifest(checkpoints, change, message, caplog):
    """A manifest with a right checksum and wrong contents is refused before memory is taken or a file opened."""
    from srunbook.checkpoint import _manifest

    checkpoints.save(2, state(2))
    path = checkpoints.directory / "step-0000000002" / "manifest.json"
    content = json.loads(path.read_text())["content"]
    change(content)
    path.write_bytes(_manifest.seal(content))

    assert checkpoints.restore() is None
    assert re.search(message, caplog.text)
    assert "none of the 1 checkpoints" in caplog.text


def test_order_of_writing(checkpoints, monkeypatch):
    """Files are synced after their last write, then their directory; then comes the rename, then its parent."""
    calls = []
    open_files = {}

    def noting(name):
        real = getattr(os, name)

        def noted(*arguments, **options):
            result = real(*arguments, **options)
            if name == "open":
                open_files[result] = Path(arguments[0]).name
            else:
                first = arguments[0]
                path = open_files[first] if isinstance(first, int) else Path(first).name
                calls.append((name, re.sub(r"\.[0-9a-f]{16}\.", ".", path)))
            return result

        return noted

    for name in ("open", "write", "fsync", "rename"):
        monkeypatch.setattr(os, name, noting(name))
    checkpoints.save(1, state(1))

    data = "part-00000.safetensors"
    commit = calls.index(("rename", "step-0000000001.partial"))
    last_write = max(index for index, call in enumerate(calls) if call == ("write", data))
    assert last_write < calls.index(("fsync", data)) < commit
    written = {name for kind, name in calls if kind == "write"}
    assert written - {data} == {name for name in written if name.startswith(".")}
    assert all(("fsync", name) in calls[:commit] for name in written)
    assert calls[commit - 1] == ("fsync", "step-0000000001.partial")
    assert calls[commit + 1 :] == [("fsync", "checkpoints")]
