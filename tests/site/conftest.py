"""Tiny sites, built with the extensions of the real one, and the real site that `nox -s docs` built."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PAGE = """\
# A page

{body}

```{{toctree}}
:hidden:

gallery/index
```
"""


@dataclass(frozen=True)
class Build:
    """What a build of a tiny site came to."""

    returncode: int
    output: str
    site: Path

    def complaints(self, text: str) -> list[str]:
        """Return the warnings and errors, each of which fails a build, that contain a text."""
        return [line for line in self.output.splitlines() if re.search("WARNING: |ERROR: ", line) and text in line]

    def html(self, name: str = "index") -> str:
        """Return the text of a page."""
        return (self.site / f"{name}.html").read_text(encoding="utf-8")


@dataclass(frozen=True)
class TinySite:
    """A small repository with the configuration and the extensions of the real one."""

    root: Path

    def write(self, name: str, text: str) -> Path:
        """Write a file of the repository."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def page(self, body: str) -> None:
        """Write the only page of the site."""
        self.write("docs/index.md", PAGE.format(body=body))

    def pages(self, bodies: dict[str, str], also: Iterable[str] = ()) -> None:
        """Write several pages, each in a file of the name given, and a list of them and of others."""
        for name, body in bodies.items():
            self.write(f"docs/{name}.md", f"# {name}\n\n{body}\n")
        listed = "\n".join([*bodies, *also])
        self.page(f"```{{toctree}}\n{listed}\n```")

    def build(self, *options: str) -> Build:
        """Build the site as `nox -s docs` does."""
        site = self.root / "build" / "site"
        command = [sys.executable, "-m", "sphinx", "-j1", "-c", ".", "-W", "-n", "--keep-going", "-d", "build/doctrees"]
        result = subprocess.run(
            [*command, *options, "docs", str(site)],
            cwd=self.root,
            env={**os.environ, "NO_COLOR": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return Build(result.returncode, re.sub(r"\x1b\[[0-9;]*m", "", result.stdout), site)


def new_site(root: Path) -> TinySite:
    """Make a site of one page and one empty gallery."""
    site = TinySite(root)
    (root / "docs" / "_static").mkdir(parents=True)
    for path in (ROOT / "docs" / "_static").iterdir():
        (root / "docs" / "_static" / path.name).symlink_to(path)
    (root / "docs" / "_static" / "drawings").unlink()
    for name in ("_ext", "_templates", "_inventories"):
        (root / "docs" / name).symlink_to(ROOT / "docs" / name)
    (root / "recordings").symlink_to(ROOT / "recordings")
    (root / "bench").mkdir()
    (root / "bench" / "measurements.py").symlink_to(ROOT / "bench" / "measurements.py")
    site.write("conf.py", (ROOT / "conf.py").read_text(encoding="utf-8"))
    site.write("docs/redirects.json", "{}")
    site.write("examples/GALLERY_HEADER.rst", "Gallery\n=======\n")
    site.write("examples/guide/GALLERY_HEADER.rst", "Guide\n-----\n")
    site.page("Nothing yet.")
    return site


@pytest.fixture
def tiny_site(tmp_path: Path) -> TinySite:
    """Make a site for one test."""
    return new_site(tmp_path)


@pytest.fixture(scope="module")
def shared_site(tmp_path_factory: pytest.TempPathFactory) -> TinySite:
    """Make a site that the tests of a module look at together, built once."""
    return new_site(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def clean_site(tmp_path_factory: pytest.TempPathFactory) -> TinySite:
    """Make another one, for a build without faults."""
    return new_site(tmp_path_factory.mktemp("clean"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that look at the real site."""
    for item in items:
        if "built_site" in getattr(item, "fixturenames", ()):
            item.add_marker("built")


@pytest.fixture(scope="session")
def built_site() -> Path:
    """Return the real site.

    Raises:
        pytest.fail.Exception: There is none.
    """
    site = ROOT / "build" / "site"
    report = site.with_name("site-included.json")
    if not (site / "index.html").is_file() or not report.is_file():
        pytest.fail(f"{site} is not there, or its build failed ({report.name}): run `python3 noxfile.py -s docs` first")
    return site


@pytest.fixture(scope="session")
def included(built_site: Path) -> dict[str, list[str]]:
    """Return which pages show which file, as the build of the real site reported it."""
    report: dict[str, list[str]] = json.loads(built_site.with_name("site-included.json").read_text(encoding="utf-8"))
    return report
