"""The cluster ends only what it can prove to be its own, and says what is wrong with its cache or its record."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from srunbook import cluster
from srunbook.cli.cluster import command as cli
from srunbook.cluster import ClusterError, Specification, State, _lifecycle, _roots

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


def plant(**changes: Any) -> Path:
    """Write a record for the cluster, with some fields of its own, and return its folder."""
    state = State(Specification(name=NAME), **changes)
    state.folder.mkdir(parents=True)
    state.save()
    return state.folder


def test_down_ends_no_process_that_it_cannot_prove_to_be_its_own():
    """A record that names a living process gets that process no signal."""
    with subprocess.Popen(["sleep", "60"]) as other:
        folder = plant(supervisor=other.pid, phase="ready")

        assert not cluster.read_state(NAME).alive
        assert cluster.down(NAME)
        assert other.poll() is None
        other.kill()
    assert not folder.exists()


def test_a_cache_folder_that_others_write_to_is_refused(base):
    """Root runs what lies there, so no command reads or removes anything in such a folder."""
    folder = plant()
    (base / "srunbook").chmod(0o775)

    for command in (cluster.running_state, cluster.down):
        with pytest.raises(
            ClusterError, match=f"{base}/srunbook belongs to .* or others may write there.*XDG_CACHE_HOME"
        ):
            command(NAME)
    assert (folder / "state.json").exists()


def test_a_root_with_a_broken_manifest_is_no_root():
    """A manifest that was cut makes no root, and one that is written last does."""
    folder = _roots.folder_of("bookworm")
    (folder / "root").mkdir(parents=True)
    root = {"path": "x", "suite": "bookworm", "slurm": "22.05.8", "date": "of an earlier version", "versions": {}}
    for text in ("", '{"suite": "bookworm"}', json.dumps(root)):
        (folder / "manifest.json").write_text(text)
        assert (_roots.find_root("bookworm") is not None) == (len(text) > 50)

    assert _roots.find_root("bookworm").path == str(folder / "root")


@pytest.mark.parametrize(
    "text", [b"", b'{"specification": {"name": "planted", "nodes": 4000}, "identity": "0123abcd"}']
)
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


def test_a_generation_that_moved_on_is_said_to_be_gone(monkeypatch):
    """Once sid holds another Slurm, 26.05 fails with a sentence and `newest` goes on."""
    later = _roots.Root("x", "sid", "27.05.1", {})
    monkeypatch.setattr(_roots, "find_root", lambda suite, more: later)

    with pytest.raises(ClusterError, match=r"no longer holds Slurm 26\.05: its packages are 27\.05\.1"):
        _roots.ensure_root("26.05")
    assert _roots.ensure_root("newest") is later


def test_a_mirror_is_found_in_either_form(tmp_path):
    """The mirror of the machine is read from either form of apt's configuration."""
    with pytest.raises(ClusterError, match="--mirror"):
        _roots.mirror_of_host(tmp_path)
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "debian.sources").write_text("Types: deb\nURIs: http://two.example/debian\n")
    assert _roots.mirror_of_host(tmp_path) == "http://two.example/debian"
    (tmp_path / "sources.list").write_text("# none\ndeb [arch=amd64] http://one.example/debian bookworm main\n")

    assert _roots.mirror_of_host(tmp_path) == "http://one.example/debian"
