"""The directive `guide-zip`, which links to a zip with everything of a guide; the build makes the zip."""

from __future__ import annotations

import io
import stat
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from code_file import INCLUDED
from docutils import nodes
from guide_files import REQUIREMENTS, GuideError, files_of, requirements_of
from guide_readme import pages_of, readme
from repository import line, root
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from srunbook._files import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

FOLDER = "zips"
"""Where the zips lie in the site."""

DATE = (1980, 1, 1, 0, 0, 0)
"""Date of every file, so that the same files make the same bytes."""


def guide_of(page: str) -> str:
    """Return the name of the guide that a page belongs to, which is that of its folder."""
    return page.split("/")[-2]


class GuideZip(SphinxDirective):
    """Link from the index of a guide to the zip of its files."""

    def run(self) -> list[nodes.Node]:
        """Write the link."""
        page = self.env.docname
        if not page.endswith("/index") or page.count("/") < 2:
            message = f"guide-zip: {page} is not the index of a guide, as guides/torchrun/index is"
            return [self.state.document.reporter.error(message, line=self.lineno)]
        self.env.metadata[page]["guide-zip"] = guide_of(page)
        name = f"{guide_of(page)}.zip"
        link = nodes.reference("", "", refuri=f"{'../' * page.count('/')}{FOLDER}/{name}", classes=["guide-zip"])
        link += nodes.Text("Everything of this guide in one zip")
        return [line(link, ": job scripts, programs, and all commands in order.", classes=["guide-zip-line"])]


def contents(env: BuildEnvironment, index: str) -> dict[str, tuple[bytes, int]]:
    """Collect what the zip of a guide holds.

    Args:
        env: The environment of a build that has read all pages.
        index: The guide's index page.

    Returns:
        Bytes and mode of each file, by its name in the zip.

    Raises:
        GuideError: No zip can be made of the guide.
    """
    guide, repository = guide_of(index), root(env)
    folder = guide.replace("-", "_")
    pages = [index, *env.toctree_includes.get(index, [])]
    files = files_of(repository, folder, [name for page in pages for name in INCLUDED.of(env).get(page, [])])
    doctrees = {page: env.get_doctree(page) for page in pages}
    base = env.config.html_baseurl
    install = f"{base}{env.config.guide_zip_install}.html"
    made = {
        "LICENSE": (repository / "LICENSE").read_text(encoding="utf-8"),
        "README.md": readme(guide, pages_of(doctrees, base, files), files, install),
        REQUIREMENTS: requirements_of(repository, folder, files),
    }
    found = {name: (path.read_bytes(), mode_of(path)) for name, path in files.items()}
    found |= {name: (text.encode(), 0o644) for name, text in made.items()}
    return {f"{guide}/{name}": found[name] for name in sorted(found)}


def mode_of(path: Path) -> int:
    """Return the mode of a file as git keeps it: whether it may be executed, and nothing else."""
    return 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644


def zipped(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    """Zip files, given with their bytes and modes; the same files make the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, (content, mode) in files.items():
            entry = zipfile.ZipInfo(name, DATE)
            entry.create_system = 3  # Unix, or the mode would mean nothing
            entry.external_attr = (stat.S_IFREG | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return buffer.getvalue()


def write_zips(app: Sphinx, exception: Exception | None) -> None:
    """Write the zips of all guides whose index links to one.

    Raises:
        ExtensionError: No zip can be made of a guide.
    """
    if exception is not None or app.builder.format != "html":
        return
    for index in sorted(page for page, facts in app.env.metadata.items() if "guide-zip" in facts):
        try:
            content = zipped(contents(app.env, index))
        except (GuideError, OSError) as error:
            raise ExtensionError(f"{index}: {error}") from error
        target = Path(app.outdir, FOLDER, f"{guide_of(index)}.zip")
        target.parent.mkdir(exist_ok=True)
        write_whole(target, content)


def load_script(app: Sphinx, page: str, _template: str, _context: dict[str, object], _doctree: object) -> None:
    """Let a page with the link load what fits its zip to the reader's cluster; no other page does."""
    if "guide-zip" in app.env.metadata.get(page, {}):
        app.add_js_file("js/zip.js", type="module")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive, and make the zips after each build."""
    app.setup_extension("code_file")
    app.add_config_value("guide_zip_install", "start/install", "env", str)
    app.add_directive("guide-zip", GuideZip)
    app.connect("html-page-context", load_script)
    app.connect("build-finished", write_zips)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
