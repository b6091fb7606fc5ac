"""What `submit` takes along: files and folders as they are, and nothing behind a link."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from srunbook.cluster import SpecificationError, _staging
from srunbook.cluster._packing import Item, pack


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make a folder with a script, what it needs, and links that lead elsewhere."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("secret")
    folder = tmp_path / "project"
    for name in ("train.sbatch", "train.py", "config.yaml", "notes.txt", "conf/model.json", "conf/deep/a.bin"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (folder / "run.sh").write_text("run")
    (folder / "run.sh").chmod(0o700)
    (folder / "key.yaml").symlink_to(secret / "key")
    (folder / "conf" / "key").symlink_to(secret / "key")
    (folder / "conf" / "all").symlink_to(secret)
    return folder


def staged(script: Path, *extra: Path) -> dict[str, tarfile.TarInfo]:
    """Return the archive that the user unpacks, by name; of several entries the last one stays."""
    stream = io.BytesIO()
    pack(list(_staging._items(script, extra)), stream)
    assert b"secret" not in stream.getvalue().replace(b"/secret", b"")
    stream.seek(0)
    with tarfile.open(fileobj=stream) as archive:
        return {entry.name: entry for entry in archive}


def test_configuration_files_come_along(project):
    """Beside the programs, the configuration files of the script's folder are staged, and nothing else."""
    found = staged(project / "train.sbatch")

    assert {*found} == {"train.sbatch", "train.py", "config.yaml", "key.yaml"}


def test_a_folder_comes_along_under_its_name(project):
    """A folder that was asked for lies beside the script, with all that is in it."""
    found = staged(project / "train.sbatch", project / "conf")

    assert {"conf", "conf/model.json", "conf/deep/a.bin"} <= {*found}


def test_the_folder_of_the_script_comes_along_without_its_name(project):
    """Of a folder that holds the script, what lies in it is staged, programs as programs."""
    found = staged(project / "train.sbatch", project)

    assert {"run.sh", "notes.txt", "conf/deep/a.bin", "train.sbatch"} <= {*found}
    assert (found["run.sh"].mode, found["notes.txt"].mode) == (0o755, 0o644)


def test_links_are_not_followed(project):
    """A link to a file or a folder of the host is a link in the job's folder, too."""
    found = staged(project / "train.sbatch", project)

    for name in ("key.yaml", "conf/key", "conf/all"):
        assert found[name].issym(), name
    assert not any(name.startswith("conf/all/") for name in found)


def test_a_link_that_was_asked_for_by_name_is_what_it_leads_to(project):
    """Whoever names a link means what it leads to."""
    link = project.parent / "linked.sh"
    link.symlink_to(project / "run.sh")

    assert staged(project / "train.sbatch", link)["linked.sh"].size == 3


def test_a_link_in_the_place_of_a_file(project, monkeypatch):
    """A file that becomes a link after it was looked at is not read."""
    real = os.open
    key = project.parent / "secret" / "key"

    def swap(path, flags, *arguments, **options):
        if path == "model.json":
            (project / "conf" / path).unlink()
            (project / "conf" / path).symlink_to(key)
        return real(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", swap)
    with pytest.raises(OSError, match="symbolic links"):
        pack([Item(project / "conf", "conf")], io.BytesIO())


def test_pipes_are_refused(project):
    """A pipe has no content to copy, and would never end."""
    os.mkfifo(project / "conf" / "pipe")

    with pytest.raises(SpecificationError, match="pipe is a pipe"):
        staged(project / "train.sbatch", project / "conf")


def test_what_is_not_there(project):
    """What was asked for and is not there is named."""
    with pytest.raises(SpecificationError, match=r"train.sbatch needs .*nothing, which is neither a file nor a folder"):
        staged(project / "train.sbatch", project / "nothing")
