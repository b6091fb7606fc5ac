"""Makes the page for missing addresses, `404.html`, work in whatever folder of a host the site lies.

A host sends this page for an address of any depth, so its own links would lead elsewhere. The page names the folder
of the site in `<base>`: the published one in the file, and, if the site lies elsewhere, the one that a script finds.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from sphinx.application import Sphinx

PAGE = "404"
SCRIPT = Path(__file__).with_suffix(".js")


def add_base(app: Sphinx, page: str, _template: str, context: dict[str, Any], _doctree: object) -> None:
    """Put the base before everything else that names an address."""
    if page == PAGE:
        base = urlsplit(app.config.html_baseurl).path or "/"
        script = SCRIPT.read_text(encoding="utf-8")
        robots = '<meta name="robots" content="noindex">'
        context["metatags"] = f'<base href="{base}"><script>\n{script}</script>{robots}{context.get("metatags", "")}'
        context["pageurl"] = None  # the page has no address of its own


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the change."""
    app.connect("html-page-context", add_base, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
