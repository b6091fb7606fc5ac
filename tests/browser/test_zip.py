"""The link to the zip of a guide: the zip of the build, or one whose job scripts fit the reader's cluster."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from support.node import call

ROOT = Path(__file__).resolve().parents[2]
RUNNER = ROOT / "tests" / "support" / "my_cluster.mjs"
ZIPS = ROOT / "build" / "site" / "zips"
PAGE = "guides/gloo-ddp/index.html"
CONFIG = {"partition": "batch", "account": None, "cpus_per_node": 64, "virtual_environment": "~/my-env"}
"""What the reader has said of the cluster."""

SAID = "The job scripts in it are fitted to your cluster."


def entries(path):
    """Return the bytes and the mode of each file in a zip."""
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {entry.filename: (archive.read(entry), entry.external_attr >> 16) for entry in archive.infolist()}


def click(page):
    """Click the link; return the download."""
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Everything in this guide as one zip").click()
    return waiting.value


@pytest.fixture
def fitted_page(open_page):
    """Open a guide as somebody whose cluster is known."""
    page = open_page(PAGE)
    page.evaluate("text => localStorage.setItem('srunbook.cluster', text)", json.dumps(CONFIG))
    page.reload()
    page.get_by_text(SAID).wait_for()
    assert page.get_by_role("button", name="My cluster").count() == 1  # one module, though the zip uses it, too
    return page


def test_without_a_cluster(open_page):
    """The link is an ordinary one, and nothing is loaded that packs zips."""
    page = open_page(PAGE)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    download = click(page)

    assert download.suggested_filename == "gloo-ddp.zip"
    assert download.path().read_bytes() == (ZIPS / "gloo-ddp.zip").read_bytes()
    assert not [url for url in asked if "fflate" in url or "zip-fitted" in url]
    assert not page.get_by_text(SAID).count()


def test_with_a_cluster(fitted_page):
    """Each job script comes fitted; where that fails, the zip is that of the build."""
    download = click(fitted_page)
    before, after = entries(ZIPS / "gloo-ddp.zip"), entries(download.path())
    scripts = sorted((ROOT / "slurm" / "gloo_ddp").glob("*.sbatch"))
    (fitted,) = call(RUNNER, {"scripts": [path.read_text(encoding="utf-8") for path in scripts], "clusters": [CONFIG]})
    expected = {f"gloo-ddp/{path.name}": text.encode() for path, text in zip(scripts, fitted, strict=True)}
    changed = {name for name in before if before[name] != after[name]}

    assert download.suggested_filename == "gloo-ddp.zip"
    assert {name: content for name, (content, _) in after.items() if name.endswith(".sbatch")} == expected
    assert changed == {*expected, "gloo-ddp/README.md"}
    assert [mode for _, mode in after.values()] == [mode for _, mode in before.values()]
    assert b"fitted to your cluster" in after["gloo-ddp/README.md"][0]

    fitted_page.reload()
    fitted_page.get_by_text(SAID).wait_for()
    fitted_page.route("**/vendor/fflate.js*", lambda route: route.abort())
    download = click(fitted_page)

    assert download.path().read_bytes() == (ZIPS / "gloo-ddp.zip").read_bytes()
    assert "the zip with the original scripts" in fitted_page.get_by_role("status").inner_text()
