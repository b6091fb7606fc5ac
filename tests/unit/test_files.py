"""A file is written whole or not at all, and nothing but a regular file is read."""

from __future__ import annotations

import os
import socket
import stat
import sys
from pathlib import Path

import pytest

from srunbook._files import read_blocks, read_whole, write_whole
from srunbook.measurements import MeasurementError, read_measurement


def test_whole_file_or_none(tmp_path, monkeypatch):
    """A write that fails leaves the old file and nothing beside it."""
    path = tmp_path / "a.json"
    write_whole(path, "old")
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))

    with pytest.raises(OSError, match="disk full"):
        write_whole(path, "new")

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_signal_just_after_the_rename(tmp_path, monkeypatch):
    """The file is the new one, and what ends the process is the signal's exception, not a missing temporary file."""
    path = tmp_path / "state.json"
    replace = Path.replace

    def replaced(source: Path, target: Path) -> None:
        replace(source, target)
        sys.exit(143)

    monkeypatch.setattr(Path, "replace", replaced)
    with pytest.raises(SystemExit, match="143"):
        write_whole(path, "new")

    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_the_same_text_is_not_written_again(tmp_path):
    """A file that holds the text already is left alone, and missing folders are made for a new one."""
    path = tmp_path / "new" / "a.json"

    assert write_whole(path, "text")
    before = path.stat().st_ino
    assert not write_whole(path, "text")
    assert path.stat().st_ino == before


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_written_file_follows_the_umask(tmp_path, umask, mode):
    """A written file may be read by those who may read any other file that its owner makes."""
    path = tmp_path / "a.json"
    earlier = os.umask(umask)
    try:
        write_whole(path, "text")
    finally:
        os.umask(earlier)

    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_written_file_replaces_what_is_none(tmp_path):
    """A FIFO, or text that is not UTF-8, is replaced when a file is written in its place."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "latin").write_bytes(b"\xe9t\xe9")

    assert write_whole(tmp_path / "pipe", "text")
    assert write_whole(tmp_path / "latin", "\u00e9t\u00e9")
    assert (tmp_path / "pipe").read_text() == "text"


@pytest.mark.parametrize(("name", "kind"), [("pipe", "a pipe"), (".", "a folder"), ("/dev/zero", "a device")])
def test_what_is_no_regular_file(tmp_path, name, kind):
    """A pipe, a folder and a device are refused by their kind, at once, also where JSON is expected."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / name)
    for path in (tmp_path / name, tmp_path / "link"):
        with pytest.raises(OSError, match=f"{kind}, not a regular file"):
            read_whole(path)
        with pytest.raises(MeasurementError, match=f"{kind}, not a regular file"):
            read_measurement(path)


def test_a_socket(tmp_path, monkeypatch):
    """A socket is refused by its kind."""
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        with pytest.raises(OSError, match="a socket, not a regular file"):
            read_whole(Path("socket"))


def test_a_file_that_grows_is_read_to_where_it_was(tmp_path):
    """What is appended while a file is read is not read."""
    path = tmp_path / "log"
    path.write_bytes(b"x" * 10)
    blocks = read_blocks(path, 4)
    first = next(blocks)
    path.write_bytes(b"x" * 10**6)

    assert len(first + b"".join(blocks)) == 10


def test_a_file_that_is_too_large(tmp_path):
    """A file beyond a limit is not read, and the message names both."""
    (tmp_path / "a").write_bytes(b"x" * 11)

    with pytest.raises(OSError, match="11 bytes, expected at most 10"):
        read_whole(tmp_path / "a", 10)
    assert read_whole(tmp_path / "a", 11) == b"x" * 11
