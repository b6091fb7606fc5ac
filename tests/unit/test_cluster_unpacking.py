"""What comes back from a cluster: files as they were, and nothing that a hostile archive asks for besides."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from srunbook import cluster
from srunbook.cluster import Specification, SpecificationError, State
from srunbook.cluster._packing import Item, pack
from srunbook.cluster._unpacking import unpack

Entry = tuple[str, str, bytes]
"""Name, kind and content of an entry: the target of a link, the bytes of a file."""

KINDS = {"file": tarfile.REGTYPE, "folder": tarfile.DIRTYPE, "link": tarfile.SYMTYPE, "hard": tarfile.LNKTYPE}
KINDS |= {"pipe": tarfile.FIFOTYPE, "device": tarfile.CHRTYPE}


def archive(*entries: Entry) -> bytes:
    """Return an archive of any entries."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w|") as made:
        for name, kind, content in entries:
            entry = tarfile.TarInfo(name)
            entry.type = KINDS[kind]
            entry.size = len(content) if kind == "file" else 0
            entry.linkname = content.decode() if kind in ("link", "hard") else ""
            made.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


@pytest.fixture
def into(tmp_path: Path) -> Callable[[bytes], str]:
    """Unpack into an empty folder, beside which lies another one."""
    (tmp_path / "here").mkdir()
    (tmp_path / "outside").mkdir()

    def run(text: bytes) -> str:
        handle = os.open(tmp_path / "here", os.O_RDONLY)
        try:
            return unpack(io.BytesIO(text), handle)
        finally:
            os.close(handle)

    return run


def test_there_and_back(into, tmp_path):
    """Files, folders, programs and links that lead down come back as they were packed."""
    source = tmp_path / "run"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "b.bin").write_bytes(bytes(range(256)) * 1000)
    (source / "go").write_text("#!/bin/sh\n")
    (source / "go").chmod(0o755)
    (source / "latest").symlink_to("deep/b.bin")
    stream = io.BytesIO()
    pack([Item(source, "run")], stream)

    assert into(stream.getvalue()) == "run"
    copy = tmp_path / "here" / "run"
    assert (copy / "deep" / "b.bin").read_bytes() == (source / "deep" / "b.bin").read_bytes()
    assert (copy / "go").stat().st_mode & 0o111
    assert not (copy / "deep" / "b.bin").stat().st_mode & 0o111
    assert (copy / "latest").readlink() == Path("deep/b.bin")


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([("run/../../outside/x", "file", b"x")], "is no part of"),
        ([("run", "folder", b""), ("other", "file", b"x")], "'other', which is no part of 'run'"),
        ([("./", "folder", b"")], "is no part of"),
        ([("run/x", "file", b"x")], "No such file"),
        ([("run", "folder", b""), ("run/x", "link", b"/etc/shadow")], "run/x' is a link to '/etc/shadow'"),
        ([("run", "folder", b""), ("run/x", "link", b"a/../../outside")], "may lead out"),
        ([("run", "folder", b""), ("run/x", "hard", b"/etc/shadow")], "run/x' is a pipe, a device or the like"),
        ([("run", "folder", b""), ("run/x", "pipe", b"")], "run/x' is a pipe, a device or the like"),
        ([("run", "folder", b""), ("run/x", "device", b"")], "run/x' is a pipe, a device or the like"),
        (
            [("run", "folder", b""), ("run/a", "folder", b""), ("run/x", "link", b"a"), ("run/x/y", "file", b"y")],
            "Not a directory|symbolic links",
        ),
        ([("run", "file", b"x"), ("run", "file", b"y")], "File exists"),
    ],
    ids=[
        "dots",
        "second",
        "nothing",
        "no-folder",
        "absolute-link",
        "link-with-dots",
        "hard-link",
        "pipe",
        "device",
        "through-a-link",
        "twice",
    ],
)
def test_hostile_archives(into, tmp_path, entries, said):
    """An archive leads nowhere else, through no link, and overwrites nothing."""
    with pytest.raises((SpecificationError, OSError), match=said):
        into(archive(*entries))

    assert not list((tmp_path / "outside").iterdir())
    assert not [path for path in (tmp_path / "here").rglob("*") if path.name == "y"]


def test_an_absolute_name_is_one_below(into, tmp_path):
    """A name that begins at the root of the file system is taken below the folder, as tar does."""
    assert into(archive(("/run", "file", b"x"))) == "run"
    assert (tmp_path / "here" / "run").read_bytes() == b"x"


@pytest.mark.parametrize("text", [b"", b"no archive", archive(("run", "file", b"x" * 4000))[:1500]])
def test_an_archive_that_is_not_whole(into, text):
    """What was cut off or is no archive at all is said to be so."""
    with pytest.raises(EOFError, match="not a whole archive"):
        into(text)


@pytest.mark.parametrize(("source", "target"), [("data", "data-2"), ("node1:a", "login:b"), ("./node1:a", "./b:c")])
def test_one_of_both_is_on_the_cluster(source, target):
    """A copy within one side is refused with two examples; a path with a slash before the colon is of this machine."""
    with pytest.raises(SpecificationError, match="Name a machine before one of the two, as in `copy data login:`"):
        cluster.copy(State(Specification()), source, target)
