"""Where root may put a copy: nowhere that a user of the cluster could have led it to."""

from __future__ import annotations

import io
import os
import subprocess
from pathlib import Path, PurePosixPath

import pytest

from srunbook.cluster._copying import RECEIVE
from srunbook.cluster._packing import Item, pack

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away, and is what is tested")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Make a home with links to folders that are root's alone, and a folder that everybody may write to."""
    for name in ("home", "etc", "safe", "shared", "source"):
        (tmp_path / name).mkdir()
    (tmp_path / "source" / "a").write_text("a")
    (tmp_path / "home" / "link").symlink_to(tmp_path / "etc")
    os.chown(tmp_path / "home", 4711, 4711)
    (tmp_path / "shared").chmod(0o777)
    return tmp_path


def receive(machine: Path, target: str, last: str = "whole") -> subprocess.CompletedProcess[bytes]:
    """Have root receive a folder, as it does on a machine of a cluster."""
    stream = io.BytesIO()
    pack([Item(machine / "source", "copy")], stream, last=last)
    path = PurePosixPath(machine, target)
    line = ["sh", "-c", RECEIVE, "sh", str(path), str(path.parent), path.name, "source"]
    return subprocess.run(line, input=stream.getvalue(), capture_output=True, cwd="/", check=False)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("home", "home is not root's alone"),
        ("home/new", "home is not root's alone"),
        ("home/link", "home/link is a link to"),
        ("home/link/new", "home/link is a link to"),
        ("shared", "shared is not root's alone"),
    ],
)
def test_root_is_led_nowhere(machine, target, said):
    """Neither a folder of another user nor a link of theirs is a place for root."""
    before = sorted(machine.rglob("*"))
    done = receive(machine, target)

    assert done.returncode == 1
    assert said in done.stderr.decode()
    assert sorted(machine.rglob("*")) == before


@pytest.mark.parametrize(("target", "made"), [("safe", "safe/source"), ("safe/new", "safe/new")])
def test_root_writes_where_nobody_else_does(machine, target, made):
    """What is root's alone from the top takes the copy, and nothing else is there."""
    assert receive(machine, target).returncode == 0
    assert [path.name for path in (machine / "safe").iterdir()] == [Path(made).name]
    assert (machine / made / "a").read_text() == "a"


def test_what_breaks_off_is_not_there(machine):
    """Without the mark at its end, an archive is not whole, although tar is content with it."""
    done = receive(machine, "safe", last="")

    assert done.stderr == b"the copy broke off\n"
    assert not list((machine / "safe").iterdir())
