"""A file is written whole or not at all."""

from __future__ import annotations

import os
import stat

import pytest

from srunbook._files import write_whole


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
