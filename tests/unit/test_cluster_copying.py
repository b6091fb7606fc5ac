"""What `submit` and `copy` take along and bring back; a folder of this machine stands for a home on the cluster."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from srunbook import cluster
from srunbook.cluster import ClusterError, Specification, SpecificationError, State, _copying

STATE = State(Specification())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run in this folder what would run in the home of a user."""
    folder = tmp_path / "home"
    folder.mkdir()
    line = ["env", f"--chdir={folder}"]
    monkeypatch.setattr(_copying, "entering", lambda state, machine, command, **_: [*line, *command])
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


def test_configuration_files_come_along(home, project):
    """The programs and configuration files of the script's folder are staged, and folders that were asked for."""
    assert staged(home, project / "train.sbatch") == {"train.sbatch", "train.py", "config.yaml"}
    assert {"conf", "conf/model.json", "conf/deep/a.bin"} <= staged(home, project / "train.sbatch", project / "conf")


def test_the_folder_of_the_script_comes_along_without_its_name(home, project):
    """Of a folder that holds the script, what lies in it is staged, programs as programs."""
    found = staged(home, project / "train.sbatch", project)

    assert {"run.sh", "notes.txt", "conf/deep/a.bin", "train.sbatch"} <= found
    assert [os.access(home / "train" / name, os.X_OK) for name in ("run.sh", "notes.txt")] == [True, False]


def test_links_are_not_followed(home, project):
    """A link to a file of the host is a link in the job's folder, too."""
    staged(home, project / "train.sbatch", project)

    assert (home / "train" / "conf" / "key").readlink() == Path("/etc/shadow")


def test_a_link_that_was_asked_for_by_name_is_what_it_leads_to(home, project):
    """Whoever names a link means what it leads to."""
    link = project.parent / "linked.sh"
    link.symlink_to(project / "run.sh")
    staged(home, project / "train.sbatch", link)

    assert (home / "train" / "linked.sh").read_text() == "run"


def test_a_name_that_is_taken_gets_a_number(home, project):
    """Whatever has the name of the new folder, even a link that leads nowhere, another one is made beside it."""
    (home / "train").symlink_to("/nowhere")

    assert cluster.stage(STATE, project / "train.sbatch") == "/home/alice/train-2"


def test_pipes_are_refused(home, project):
    """A pipe has no content to copy, and would never end."""
    os.mkfifo(project / "conf" / "pipe")

    with pytest.raises(SpecificationError, match="conf/pipe is a pipe"):
        staged(home, project / "train.sbatch", project / "conf")


def test_what_is_not_there(home, project):
    """What was asked for and is not there is named."""
    with pytest.raises(SpecificationError, match=r"train.sbatch needs .*nothing, which is neither a file nor a folder"):
        staged(home, project / "train.sbatch", project / "nothing")


def test_there_and_back(home, project, tmp_path):
    """Files, folders, programs and links that lead down come back as they were."""
    (project / "conf" / "key").unlink()
    (project / "latest").symlink_to("conf")
    cluster.copy(STATE, str(project), "login:results")
    cluster.copy(STATE, "login:results", str(tmp_path / "back"))

    assert (tmp_path / "back" / "conf" / "deep" / "a.bin").read_text() == "conf/deep/a.bin"
    assert os.access(tmp_path / "back" / "run.sh", os.X_OK)
    assert (tmp_path / "back" / "latest").readlink() == Path("conf")
    assert {path.name for path in tmp_path.iterdir()} == {"home", "project", "back"}


def test_a_link_that_leads_out_ends_a_copy(home, project, tmp_path):
    """A link that could lead anywhere on this machine does not come back, nor does anything else of its folder."""
    with pytest.raises(SpecificationError, match="absolute path"):
        cluster.copy(STATE, f"login:{project}", str(tmp_path / "back"))

    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize("direction", ["there", "back"])
def test_a_folder_takes_nobodys_place(home, project, direction):
    """What has the name already stays, on either side, and the message names it."""
    (project / "conf" / "key").unlink()
    cluster.copy(STATE, str(project / "conf"), "login:")
    source, target = (str(project / "conf"), "login:") if direction == "there" else ("login:conf", str(project))

    with pytest.raises(ClusterError, match="conf is there already: remove it"):
        cluster.copy(STATE, source, target)


@pytest.mark.parametrize(("source", "target"), [("data", "data-2"), ("node1:a", "login:b"), ("./node1:a", "./b:c")])
def test_one_of_both_is_on_the_cluster(source, target):
    """A copy within one side is refused with two examples; a path with a slash before the colon is of this machine."""
    with pytest.raises(SpecificationError, match="Name a machine before one of the two, as in `copy data login:`"):
        cluster.copy(STATE, source, target)
