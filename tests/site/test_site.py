"""The real site, as `nox -s docs` built it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]

LOADING = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "object": "data",
    "embed": "src",
}
"""Elements that make a browser load something, and the attribute that says what."""

NOT_LOADED = {"canonical", "next", "prev", "search", "index", "author", "edit", "copyright", "genindex"}
"""Kinds of <link> that are only followed when somebody asks for it."""


class Page(HTMLParser):
    """Collects the ids, the links and the loaded files of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Takes what one tag says."""
        values = dict(attrs)
        self.ids.update(values[name] for name in ("id", "name") if values.get(name) and (name == "id" or tag == "a"))
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if values.get(LOADING.get(tag, "")):
            self.loaded.append(values[LOADING[tag]])
        if tag == "link" and not set((values.get("rel") or "").split()) & NOT_LOADED:
            self.loaded.append(values["href"])


def pages(site: Path) -> dict[Path, Page]:
    """All pages of a site."""
    return {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def broken_links(site: Path) -> tuple[list[str], int]:
    """Follows every link that stays within the site.

    Returns:
        What is broken, and how many links were followed.
    """
    all_pages, broken, count = pages(site), [], 0
    for path, page in all_pages.items():
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            # 404.html is served at any address, so its links begin at the root of the host.
            if parts.scheme or parts.netloc or link.startswith("data:") or parts.path.startswith("/"):
                continue
            count += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                broken.append(f"{path.relative_to(site)}: {link}: no such file")
            elif parts.fragment and target in all_pages and unquote(parts.fragment) not in all_pages[target].ids:
                broken.append(f"{path.relative_to(site)}: {link}: the page has no such anchor")
    return broken, count


def test_links_and_anchors(built_site):
    """Every link within the site leads to a file, and every #anchor to an id."""
    broken, count = broken_links(built_site.resolve())

    assert not broken
    assert count > 500  # an empty scan proves nothing


@pytest.mark.parametrize(
    ("link", "complaint"),
    [
        ("b.html#there", None),
        ("b.html#absent", "no such anchor"),
        ("c.html", "no such file"),
        ("#absent", "no such anchor"),
    ],
)
def test_broken_anchor_is_found(tmp_path, link, complaint):
    """The crawl names a link whose page or anchor does not exist."""
    (tmp_path / "a.html").write_text(f'<a href="{link}">x</a>')
    (tmp_path / "b.html").write_text('<p id="there">x</p>')

    broken, count = broken_links(tmp_path)

    assert count == 1
    assert broken == (
        [f"a.html: {link}: {'the page has ' if 'anchor' in complaint else ''}{complaint}"] if complaint else []
    )


def test_nothing_from_other_hosts(built_site):
    """No page, style sheet or script loads anything from another host."""
    foreign = [
        f"{path}: {url}" for path, page in pages(built_site).items() for url in page.loaded if urlsplit(url).netloc
    ]
    for path in sorted(built_site.rglob("*.css")):
        foreign += [
            f"{path}: {url}" for url in re.findall(r"(?:url\(|@import)\s*[\"']?(https?://[^\"')]+)", path.read_text())
        ]

    assert not foreign


def test_every_page_has_a_preview_and_an_edit_link(built_site):
    """Every page that somebody wrote has Open Graph data, and a link to edit its source."""
    written = [
        path.relative_to(ROOT / "docs")
        for path in sorted((ROOT / "docs").rglob("*"))
        if path.suffix in (".md", ".rst") and "gallery" not in path.parts and path.name != "404.md"
    ]

    assert len(written) > 10
    for name in written:
        html = (built_site / name.with_suffix(".html")).read_text(encoding="utf-8")
        assert f'href="https://github.com/srunbook/srunbook/edit/main/docs/{name.as_posix()}"' in html
        for field in ("og:title", "og:description", "og:url"):
            assert re.search(rf'<meta property="{field}" content="[^"]+"', html), (name, field)


def test_page_for_missing_addresses(built_site):
    """The site has a 404 page whose files are named from the root of the host."""
    html = (built_site / "404.html").read_text(encoding="utf-8")

    assert "There is no such page" in html
    assert 'href="/en/latest/troubleshooting/index.html"' in html


def test_gallery_pages_have_output(built_site):
    """Every driver has its page, with what it printed."""
    drivers = sorted(ROOT.glob("examples/*/plot_*.py"))

    assert drivers
    for driver in drivers:
        html = (built_site / "gallery" / driver.parent.name / f"{driver.stem}.html").read_text(encoding="utf-8")
        assert "sphx-glr-script-out" in html or "sphx-glr-single-img" in html, driver
