"""What `submit` takes along; a folder of this machine stands for a home on the cluster."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from srunbook import cluster
from srunbook.cluster import Specification, SpecificationError, State, _jobs

STATE = State(Specification())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run in this folder what would run in the home of a user."""
    folder = tmp_path / "home"
    folder.mkdir()
    line = ["env", f"--chdir={folder}"]
    monkeypatch.setattr(_jobs, "entering", lambda state, machine, command, **_: [*line, *command])
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make a folder with a script, what it needs, and a link."""
    folder = tmp_path / "project"
    for name in ("train.sbatch", "train.py", "config.yaml", "notes.txt", "conf/model.json", "conf/deep/a.bin"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (folder / "run.sh").write_text("run")
    (folder / "run.sh").chmod(0o700)
    (folder / "conf" / "key").symlink_to("/etc/shadow")
    return folder


def staged(home: Path, script: Path, *extra: Path) -> set[str]:
    """Return what lies in the folder of the job."""
    folder = home / Path(cluster.stage(STATE, script, extra=extra)).name
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_the_folder_of_the_script_comes_along_without_its_name(home, project):
    """Of a folder that holds the script, what lies in it is staged, programs as programs and links as links."""
    found = staged(home, project / "train.sbatch", project)

    assert {"run.sh", "notes.txt", "conf/deep/a.bin", "train.sbatch"} <= found
    assert [os.access(home / "train" / name, os.X_OK) for name in ("run.sh", "notes.txt")] == [True, False]
    assert (home / "train" / "conf" / "key").readlink() == Path("/etc/shadow")


def test_a_name_that_is_taken_gets_a_number(home, project):
    """Whatever has the name of the new folder, even a link that leads nowhere, another one is made beside it."""
    (home / "train").symlink_to("/nowhere")

    assert cluster.stage(STATE, project / "train.sbatch") == "/home/alice/train-2"


def test_what_is_not_there(home, project):
    """What was asked for and is not there is named."""
    with pytest.raises(SpecificationError, match=r"train.sbatch needs .*nothing, which is neither a file nor a folder"):
        staged(home, project / "train.sbatch", project / "nothing")
