"""Keeps the style sheets and the script of sphinx-gallery out of all pages but those of the gallery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

NAMES = ("sg_gallery", "sg-tags")
"""How the names of these files begin, below `_static/`."""


def leave_out(app: Sphinx, page: str, _template: str, context: dict[str, Any], _doctree: object) -> None:
    """Take the files out of what a page loads."""
    folders = app.config.sphinx_gallery_conf["gallery_dirs"]
    if page.startswith(tuple(f"{folder}/" for folder in ([folders] if isinstance(folders, str) else folders))):
        return
    for kind in ("css_files", "script_files"):
        loaded = ((file, str(getattr(file, "filename", file)).rpartition("/")[2]) for file in context[kind])
        context[kind] = [file for file, name in loaded if not name.startswith(NAMES)]


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the change, after all that add a file to a page."""
    app.connect("html-page-context", leave_out, priority=999)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
