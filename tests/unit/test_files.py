"""A file is written whole or not at all, and nothing but a regular file is read."""

from __future__ import annotations

import os

import pytest

from srunbook._files import read_blocks, write_whole


def test_whole_file_or_none(tmp_path, monkeypatch):
    """A write that fails leaves the old file and nothing beside it."""
    path = tmp_path / "a.json"
    write_whole(path, "old")
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))

    with pytest.raises(OSError, match="disk full"):
        write_whole(path, "new")

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_same_text_is_not_written_again(tmp_path):
    """A file that holds the text already is left alone, and missing folders are made for a new one."""
    path = tmp_path / "new" / "a.json"

    assert write_whole(path, "text")
    before = path.stat().st_ino
    assert not write_whole(path, "text")
    assert path.stat().st_ino == before


@pytest.mark.parametrize("name", ["pipe", ".", "/dev/zero"])
def test_what_is_no_regular_file(tmp_path, name):
    """A pipe, a folder and a device are refused."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / name)
    for path in (tmp_path / name, tmp_path / "link"):
        with pytest.raises(OSError, match="not a regular file"):
            next(read_blocks(path))
