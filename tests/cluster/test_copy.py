"""`srunbook cluster copy`, and root on the cluster: whole copies, by a user's own hands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from srunbook import cluster
from srunbook.cli.cluster import command as cli
from srunbook.cluster import SpecificationError, State

COMMAND = [sys.executable, "-c", "from srunbook.cli import main; main(prog_name='srunbook')", "cluster"]


@pytest.fixture(autouse=True)
def tidy(slurm: State) -> Iterator[None]:
    """Leave nothing of a test where another one looks."""
    yield
    cluster.capture(slurm, ["bash", "-c", "rm -rf ~/copied* /tmp/copied*"])
    cluster.capture(slurm, ["bash", "-c", "rm -rf /tmp/copied*"], user="root")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Make a folder with a program, a file below, and two links."""
    folder = tmp_path / "copied"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a.txt").write_text("a\n")
    (folder / "run.sh").write_text("#!/bin/sh\necho it runs\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "latest").symlink_to("deep")
    return folder


def test_there_and_back(slurm, as_user, source, tmp_path):
    """A folder comes to the home of the user, as the user's own, and back as it was."""
    cluster.copy(slurm, str(source), "login:")
    there = as_user("bash", "-c", "stat --format='%n %U %a' copied copied/* copied/deep/a.txt; copied/run.sh")
    cluster.copy(slurm, "node1:copied", str(tmp_path / "back"))
    listed = subprocess.run(["diff", "--recursive", "--no-dereference", source, tmp_path / "back"], check=False)

    assert there.splitlines() == [
        "copied alice 755",
        "copied/deep alice 755",
        "copied/latest alice 777",
        "copied/run.sh alice 755",
        "copied/deep/a.txt alice 644",
        "it runs",
    ]
    assert listed.returncode == 0
    assert os.access(tmp_path / "back" / "run.sh", os.X_OK)
    assert {path.name for path in tmp_path.iterdir()} == {"copied", "back"}


def test_names(slurm, as_user, source, tmp_path):
    """In a folder a copy keeps its name; otherwise it gets that of the target, and a file takes the place of a file."""
    (tmp_path / "b.txt").write_text("b\n")
    for target in ("node1:/tmp/", "node1:/tmp/copied.txt", "login:~/copied-2"):
        cluster.copy(slurm, str(source / "deep" / "a.txt"), target)
    cluster.copy(slurm, str(tmp_path / "b.txt"), "login:copied-2")
    for origin, target in (("login:copied-2", tmp_path), ("node1:/tmp/copied.txt", tmp_path / "b.txt")):
        cluster.copy(slurm, origin, str(target))
    seen = cluster.capture(slurm, ["cat", "/tmp/a.txt", "/tmp/copied.txt"], machine="node1").stdout
    elsewhere = cluster.capture(slurm, ["ls", "/tmp/a.txt", "/tmp/copied.txt"], machine="node2").stdout
    cluster.capture(slurm, ["rm", "/tmp/a.txt", "/tmp/copied.txt"], machine="node1")

    assert (seen, elsewhere) == ("a\na\n", "")
    assert as_user("cat", "copied-2") == "b\n"
    assert ((tmp_path / "copied-2").read_text(), (tmp_path / "b.txt").read_text()) == ("b\n", "a\n")


def test_a_copy_is_whole_or_not_there(slurm, until, source, tmp_path):
    """A copy that breaks off half way leaves nothing, on either side."""
    (source / "deep" / "big").write_bytes(b"x" * 2**20)
    os.mkfifo(source / "pipe")
    with pytest.raises(SpecificationError, match="pipe is a pipe"):
        cluster.copy(slurm, str(source), "login:copied-half")
    seen = "ls -A /home/alice | grep -E '^copied|^.copy' || echo nothing"
    until(lambda: cluster.capture(slurm, ["bash", "-c", seen]).stdout == "nothing\n")
    cluster.capture(slurm, ["bash", "-c", "mkdir copied; echo a >copied/a; mkfifo copied/b"])
    with pytest.raises(SpecificationError, match="copied/b' is a special file"):
        cluster.copy(slurm, "login:copied", str(tmp_path / "back"))

    assert [path.name for path in tmp_path.iterdir()] == ["copied"]


def test_a_link_of_a_user_leads_nowhere(slurm, as_user, tmp_path):
    """A link that leads out of the folder is named; one in the place of the target is replaced, not followed."""
    as_user("bash", "-c", "mkdir copied; ln -s /etc/shadow copied/x")
    with pytest.raises(SpecificationError, match="copied/x' is a link to an absolute path"):
        cluster.copy(slurm, "login:copied", str(tmp_path))
    (tmp_path / "a").write_text("new\n")
    as_user("bash", "-c", "echo kept >copied/kept; ln -s kept copied/a")
    cluster.copy(slurm, str(tmp_path / "a"), "login:copied")

    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert as_user("cat", "copied/kept", "copied/a") == "kept\nnew\n"


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["nothing", "login:"], 2, "no such file or folder: nothing"),
        (["login:nothing", "."], 1, "login:nothing was not copied to .: realpath: ./nothing: No such file"),
        (["{file}", "login:nothing/x"], 1, "was not copied to login:nothing/x: no folder nothing that alice may enter"),
        (["{file}", "node9:"], 2, "node 'node9': the cluster has ctl, login, node1"),
        (["--user", "carol", "{file}", "login:"], 2, "user 'carol': the cluster has alice, bob and root"),
    ],
)
def test_errors(slurm, tmp_path, monkeypatch, arguments, status, said):
    """Each mistake has a line of its own, and leaves nothing."""
    (tmp_path / "here").mkdir()
    file = tmp_path / "file"
    file.touch()
    words = [word.format(file=file) for word in arguments]
    monkeypatch.chdir(tmp_path / "here")
    done = CliRunner().invoke(cli, ["copy", "--name", slurm.specification.name, *words])

    assert (done.exit_code, done.stdout) == (status, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list((tmp_path / "here").iterdir())


def test_root_administers(slurm):
    """`exec --user root` has root's home and may change what users may not; a job has no root."""
    name = ["--name", slurm.specification.name]
    change = "id -un; pwd; scontrol update PartitionName=debug MaxTime=29 && scontrol show partition debug"
    line = [*COMMAND, "exec", *name, "--user", "root", "--", "bash", "-c", change]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    cluster.capture(slurm, ["scontrol", "reconfigure"], user="root")
    refused = CliRunner().invoke(cli, ["submit", *name, "--user", "root", __file__])

    assert done.stdout.splitlines()[:2] == ["root", "/root"]
    assert re.search(r"MaxTime=00:29:00", done.stdout)
    assert refused.exit_code == 2
    assert "a job belongs to a user of the cluster, which has alice, bob" in refused.stderr
