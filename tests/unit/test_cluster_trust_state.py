"""The cluster trusts what only its own user could have written, and ends only what it can prove to be its own."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from srunbook import cluster
from srunbook.cli.cluster import command as cli
from srunbook.cluster import ClusterError, Image, Provision, Specification, State, _lifecycle, _roots
from srunbook.cluster._cache import held, make_folder
from srunbook.cluster._images import ensure_image, recipe
from srunbook.cluster._processes import start_time
from srunbook.cluster._state import folder_of, locked

NAME = "planted"


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Use an empty folder as XDG_CACHE_HOME, and let an ordinary user run these tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(_lifecycle, "check_root", lambda: None, raising=False)
    tmp_path.chmod(0o755)
    before = os.umask(0o022)
    yield tmp_path
    os.umask(before)


@pytest.fixture
def foreign() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that is no part of any cluster."""
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def plant(**changes: Any) -> Path:
    """Write a record for the cluster, with some fields replaced, and return its folder."""
    state = State(Specification(name=NAME))
    state.folder.mkdir(parents=True)
    state.save()
    record = state.folder / "state.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | changes))
    return state.folder


def test_down_ends_no_process_that_it_cannot_prove_to_be_its_own(foreign):
    """A record that names a living process, with its right start time and boot, gets that process no signal."""
    folder = plant(supervisor=[foreign.pid, start_time(foreign.pid)], phase="ready")

    assert not cluster.read_state(NAME).alive
    assert cluster.down(NAME)
    assert foreign.poll() is None
    assert not folder.exists()


def test_down_removes_no_folder_that_a_record_names(base):
    """Folders that a record gives as cgroups are left alone: the paths follow from the identity."""
    other = base / "other" / "empty" / "folders"
    other.mkdir(parents=True)
    plant(groups=[str(base / "other")])

    assert cluster.down(NAME)
    assert other.is_dir()


def test_down_removes_the_folder_of_no_other_cluster():
    """A record that gives another name does not lead `down` to the folder of that cluster."""
    other = State(Specification(name="other"))
    other.folder.mkdir(parents=True)
    other.save()
    plant(specification={"name": "other"})

    with pytest.raises(ClusterError, match=r"'other'.*srunbook cluster down --name planted"):
        cluster.read_state(NAME)
    assert cluster.down(NAME)
    assert cluster.read_state("other") == other


def world_writable(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o002)


def group_writable(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o020)


def linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def of_another_user(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, 4711, -1)


DAMAGES = {
    world_writable: "is writable by other users",
    group_writable: "is writable by other users",
    of_another_user: "belongs to user 4711",
    linked: "is a link",
}
PLACES = ("srunbook", "srunbook/clusters", f"srunbook/clusters/{NAME}", f"srunbook/clusters/{NAME}/state.json")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_record_that_another_user_could_have_written_is_refused(base, damage, place):
    """No command reads a record whose file, or a folder above it, another user could change; `down` reads none."""
    folder = plant()
    damage(base / place)
    refused = pytest.raises(
        ClusterError, match=f"{base / place} (belongs to user|is writable by other users|is a link)"
    )

    with refused:
        cluster.running_state(NAME)
    if place.endswith("state.json"):
        assert cluster.down(NAME)
        assert not folder.exists()
        return
    with refused:
        cluster.down(NAME)
    assert (folder / "state.json").exists()


@pytest.mark.parametrize("damage", [world_writable, of_another_user])
def test_a_cache_folder_that_another_user_could_replace_is_refused(base, damage):
    """So is a cache folder below one where another user may rename things; /tmp is safe, by its sticky bit."""
    plant()
    damage(base)

    with pytest.raises(ClusterError, match=f"{base} .*XDG_CACHE_HOME"):
        cluster.read_state(NAME)
    base.chmod(0o1777)
    os.chown(base, os.geteuid(), -1)
    assert cluster.read_state(NAME)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("place", ["roots", "roots/SUITE", "roots/SUITE/manifest.json", "roots/SUITE/root"])
def test_a_planted_root_is_refused(base, place, damage):
    """What a cluster runs as root comes from a root that no other user could have put there."""
    folder = _roots.folder_of("bookworm")
    (folder / "root").mkdir(parents=True)
    root = {"path": "/elsewhere", "suite": "bookworm", "slurm": "22.05.8", "date": "x", "recipe": "x", "versions": {}}
    (folder / "manifest.json").write_text(json.dumps(root))
    assert _roots.find_root("bookworm").path == str(folder / "root")
    found = base / "srunbook" / place.replace("SUITE", folder.name)
    damage(found)

    with pytest.raises(ClusterError, match=f"{found} {DAMAGES[damage]}"):
        _roots.find_root("bookworm")


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("place", ["images", "images/jax.json", "images/jax.sif"])
def test_a_planted_image_is_refused(base, monkeypatch, place, damage):
    """Neither does a cluster come up with an image that another user could have put there."""
    definition = base / "jax.def"
    definition.write_text("Bootstrap: debootstrap\n")
    image = Image("jax", definition)
    images = make_folder(base / "srunbook" / "images")
    (images / "jax.sif").touch()
    (images / "jax.json").write_text(json.dumps({"recipe": recipe(image)}))
    root = _roots.Root("x", "sid", "26.05.1", "x", "x", {"apptainer": "1.4"})
    assert ensure_image(root, image) == images / "jax.sif"
    damage(base / "srunbook" / place)
    for name in ("check_host", "ensure_root"):
        monkeypatch.setattr(_lifecycle, name, lambda *_, **__: root)

    with pytest.raises(ClusterError, match=f"{base / 'srunbook' / place} {DAMAGES[damage]}"):
        cluster.up(Specification(name=NAME), Provision(images=(image,)))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"path": 3}', '{"suite": "bookworm"}'])
def test_a_root_with_a_broken_manifest_is_no_root(text):
    """A manifest that was cut, or has another form, makes no root: it is made anew."""
    folder = _roots.folder_of("bookworm")
    (folder / "root").mkdir(parents=True)
    (folder / "manifest.json").write_text(text)

    assert _roots.find_root("bookworm") is None


WHOLE = json.dumps({"specification": {"name": NAME, "nodes": 4}, "identity": "0123abcd", "boot": "x"})
BROKEN = {
    "empty": b"",
    "cut": WHOLE[:60].encode(),
    "not-json": b"up since Monday",
    "not-utf-8": b"\xff\xfe\x00",
    "a-list": b"[]",
    "no-specification": b"{}",
    "specification-of-another-type": WHOLE.replace('"nodes": 4', '"nodes": "four"').encode(),
    "specification-out-of-range": WHOLE.replace('"nodes": 4', '"nodes": 4000').encode(),
    "supervisor-of-another-type": WHOLE.replace('"boot"', '"supervisor": ["1", null], "boot"').encode(),
    "identity-with-a-path": WHOLE.replace("0123abcd", "../../x").encode(),
    "nested": b"[" * 100_000,
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_broken_record_is_named_and_cleared_away(text):
    """`status` says which record is broken and what to do; what it says works."""
    folder = plant()
    (folder / "state.json").write_bytes(text)
    result = CliRunner().invoke(cli, ["status", "--name", NAME])

    assert (result.exit_code, result.exception.__class__) == (1, SystemExit)
    assert f"{folder}/state.json" in result.stderr
    assert f"srunbook cluster down --name {NAME}" in result.stderr
    assert cluster.down(NAME)
    assert not folder.exists()


def supervisor(folder: Path, name: str = "unshare") -> subprocess.Popen[bytes]:
    """Start a process with the command line of a supervisor, or of a program that works on the same folder."""
    script = f'exec -a {name} sh -c "read go" sh "$1" /lower'
    process = subprocess.Popen(["bash", "-c", script, "bash", str(folder / "space-0123abcd")], stdin=subprocess.PIPE)
    while Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")[0] != name.encode():
        assert process.poll() is None
    return process


def test_down_finds_the_supervisor_of_a_broken_record():
    """With a record that names nobody, `down` ends the cluster's first process, and no other that names its folder."""
    folder = plant()
    (folder / "state.json").write_text("{")
    with (  # what is left ends with its input
        supervisor(folder) as own,
        supervisor(folder_of("other")) as other,
        supervisor(folder, "ls") as reader,
    ):
        assert cluster.down(NAME)
        assert own.wait() == -9
        assert (other.poll(), reader.poll()) == (None, None)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("relative", "XDG_CACHE_HOME is 'relative', a relative path"),
        ("/dev/null", "/dev/null is not a folder"),
        ("/proc/none", "/proc/none"),
        ("/a b", "free of spaces"),
    ],
)
@pytest.mark.parametrize("subcommand", ["up", "status", "down"])
def test_a_useless_cache_folder_is_refused(monkeypatch, subcommand, value, said):
    """A cache folder that cannot be one is bad input, and said to be so."""
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    for module in (_lifecycle, _roots):
        monkeypatch.setattr(module, "check_host", lambda **_: None)
    result = CliRunner().invoke(cli, [subcommand])

    if value == "/proc/none" and subcommand != "up":  # nothing is there, and nothing is made
        assert result.exit_code in (0, 1)
        return
    assert (result.exit_code, result.exception.__class__) == (2 if value != "/proc/none" else 1, SystemExit)
    assert said in result.stderr
    assert not Path("relative").exists()


@pytest.mark.parametrize("mirror", ["debian", "ftp://host/debian", "http://", "http:///debian", "file:///none/there"])
def test_a_bad_mirror_is_bad_input(base, monkeypatch, mirror):
    """A mirror that is no URL, or names no folder, ends with status 2, also where no root has to be made."""
    monkeypatch.setattr(_lifecycle, "check_host", lambda **_: None)
    result = CliRunner().invoke(cli, ["up", "--mirror", mirror])

    assert result.exit_code == 2
    assert f"mirror {mirror!r}" in result.stderr
    assert not list(base.iterdir())


def test_down_needs_no_room(monkeypatch):
    """A full disk does not keep a cluster up."""
    folder = plant()
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 0})())

    assert cluster.down(NAME)
    assert not folder.exists()


def test_nothing_stays_of_a_cluster(base):
    """Once a cluster is down, its folder and its lock are gone; a `down` without a cluster leaves nothing either."""
    plant()

    assert cluster.down(NAME)
    assert not cluster.down(NAME)
    assert [path.name for path in base.rglob("*")] == ["srunbook", "clusters"]


def test_one_at_a_time_holds_a_cluster():
    """A second command for the same cluster is refused; one for another cluster is not."""
    with ExitStack() as stack:
        stack.enter_context(locked(NAME))
        stack.enter_context(locked("other"))
        with pytest.raises(ClusterError, match="another command is starting or stopping cluster 'planted'"):
            stack.enter_context(locked(NAME))
    with locked(NAME):
        assert folder_of(NAME).is_dir()
    assert not folder_of(NAME).exists()


def test_who_waited_for_a_removed_folder_holds_the_new_one(base):
    """The folder is the lock: whoever waited for one that its holder has removed makes it anew, and holds that."""
    folder = base / "srunbook" / "roots" / "one"
    inside = threading.Event()
    end = threading.Event()

    def wait() -> None:
        with held(folder, wait=True):
            inside.set()
            end.wait()

    with held(folder, wait=False):
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not inside.wait(0.1)
    inside.wait()
    with pytest.raises(BlockingIOError), held(folder, wait=False):
        pass
    end.set()
    waiting.join()
    assert not folder.exists()


def test_a_fault_of_another_version_is_named():
    """`heal` says which fault it does not know, and that `down` undoes it."""
    plant(faults=[{"node": "node1"}])
    state = cluster.read_state(NAME)
    assert state is not None

    with pytest.raises(ClusterError, match=r"\{'node': 'node1'\}.*srunbook cluster down"):
        cluster.faults.heal(state)
