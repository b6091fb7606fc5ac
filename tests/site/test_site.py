"""The real site, as `nox -s docs` built it."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]

LOADED = {"src", "srcset", "poster", "data", "background", "action", "xlink:href"}
"""Attributes that name what a browser loads. So does `href`, but for <a>, and for a <link> of these kinds:"""

NOT_LOADED = {"canonical", "next", "prev", "search", "index", "author", "edit", "copyright", "genindex"}


class Page(HTMLParser):
    """Collects the ids, the links, the loaded files, and the inline styles and scripts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.code: list[str] = []
        self._in_code = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Take what one tag says."""
        values = {name: value for name, value in attrs if value}
        self.ids.update(values[name] for name in ("id", "name") if name in values and (name == "id" or tag == "a"))
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        for name in LOADED & values.keys():
            addresses = values[name].split(",") if name == "srcset" else [values[name]]
            self.loaded += [address.split()[0] for address in addresses if address.strip()]
        if tag != "a" and "href" in values and not set(values.get("rel", "").split()) & NOT_LOADED:
            self.loaded.append(values["href"])
        # A handler is a script, too; and many attributes of SVG take url(...).
        self.code += [value for name, value in values.items() if name.startswith(("on", "style")) or "url(" in value]
        self._in_code = tag == "style" or (tag == "script" and values.get("type") != "application/ld+json")

    def handle_endtag(self, tag):
        """End a style or a script."""
        self._in_code = False

    def handle_data(self, data):
        """Take an inline style or script."""
        if self._in_code:
            self.code.append(data)


page_of = functools.cache(Page)
"""The page of a text: several tests ask for the same."""


def pages(site: Path) -> dict[Path, Page]:
    """Return all pages of a site."""
    return {path: page_of(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def broken_links(site: Path) -> tuple[list[str], int]:
    """Follow every link that stays within the site.

    Returns:
        What is broken, and how many links were followed.
    """
    all_pages, broken, count = pages(site), [], 0
    files = {os.fspath(path): path for path in site.rglob("*") if path.is_file()}
    for path, page in all_pages.items():
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            # 404.html is served at any address, so its links begin at the root of the host.
            rooted = parts.path.startswith("/") and path == site / "404.html"
            if parts.scheme or parts.netloc or link.startswith("data:") or rooted:
                continue
            count += 1
            place = os.path.normpath(f"{path.parent}/{unquote(parts.path)}") if parts.path else os.fspath(path)
            target = files.get(place) or files.get(f"{place}/index.html")
            if target is None:
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


NAMED_ONLY = re.compile(
    r"""/\*.*?\*/                           # comments
      | ^\s*//.*?$ | (?<=[;,{}()\s])//\s.*?$
      | \#[ ]yaml-language-server:[ ]\$schema=[\w:/.-]*  # a comment of a file that is written
      | https?://www\.w3\.org/[\w./#]*      # names of XML's namespaces
      | https://srunbook\.readthedocs\.io/[\w./-]*(?=")  # addresses of this site's pages, printed in reports
      | http://localhost:8000\b             # what a reader opens who serves the site
    """,
    re.X | re.S | re.M,
)
"""What looks like an address in a style or a script, and is not loaded."""


def addresses(code: str) -> list[str]:
    """Return the addresses of other hosts in a style or a script."""
    return re.findall(r"""(?:https?:|wss?:|(?<=["'`(\s]))//[\w\[][^\s"'`)<>\\]*""", NAMED_ONLY.sub(" ", code))


def foreign(site: Path) -> list[str]:
    """List what pages, style sheets, scripts and drawings load from other hosts."""
    found = []
    for path in sorted(site.rglob("*")):
        if path.suffix in (".html", ".svg"):
            page = page_of(path.read_text(encoding="utf-8"))
            urls = [url for url in page.loaded if urlsplit(url).netloc]
            urls += [url for code in page.code for url in addresses(code)]
        else:
            scripted = path.suffix in (".css", ".js", ".mjs")
            urls = addresses(path.read_text(encoding="utf-8")) if scripted else []
        found += [f"{path.relative_to(site)}: {url}" for url in urls]
    return found


def test_nothing_from_other_hosts(built_site):
    """No page, style sheet, script or drawing loads anything from another host."""
    assert foreign(built_site) == []


LOADS = {
    "style": ("a.html", '<p style="background: url(https://host.example/a.png)">x</p>'),
    "script": ("a.html", '<script>fetch("https://host.example/a")</script>'),
    "js": ("a.js", "fetch(`https://host.example/a`);"),
    "css": ("a.css", '@import "//host.example/a.css";'),
}


@pytest.mark.parametrize(("name", "text"), LOADS.values(), ids=LOADS.keys())
def test_load_from_another_host_is_found(tmp_path, name, text):
    """However a page, style sheet, script or drawing names another host to load from, it is found."""
    (tmp_path / name).write_text(text)

    assert len(foreign(tmp_path)) == 1


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
        assert f"https://github.com/srunbook/srunbook/issues/new?title={name.with_suffix('').as_posix()}%3A" in html
        for field in ("og:title", "og:description", "og:url"):
            assert re.search(rf'<meta property="{field}" content="[^"]+"', html), (name, field)


def test_page_for_missing_addresses(built_site):
    """The 404 page names the folder of the published site, from which all its links and files lead on."""
    html = (built_site / "404.html").read_text(encoding="utf-8")
    folder = urlsplit(os.environ.get("READTHEDOCS_CANONICAL_URL", "/en/latest/")).path

    assert "This page doesn't exist" in html
    assert html.index(f'<base href="{folder}">') < html.index("<link")
    assert 'href="troubleshooting/index.html"' in html
    assert not re.search(rf'(?:href|src)="/(?!{folder[1:]}")', html)


@pytest.mark.built
@pytest.mark.parametrize("page", ["index", "troubleshooting/slurm-munge"])
def test_navigation(built_site, page):
    """Beside a page stand the guides and the tools; of entries and API pages, which lead back, their index alone."""
    html = (built_site / f"{page}.html").read_text(encoding="utf-8")
    tree = html[html.index('class="sidebar-tree"') : html.index("</aside>")]
    back = re.search(r'<nav class="breadcrumb".*?</nav>', html, re.DOTALL)

    assert ">Troubleshooting</a>" in tree
    assert "hangs.html" in tree
    assert "slurm-out-of-memory.html" not in tree
    assert "api-slurm.html" not in tree
    assert tree.count('current-page"') == (page != "index")
    assert (back is not None) == ("/" in page)
    assert back is None or 'href="index.html"' in back[0] or 'href="../index.html"' in back[0]


CAPTION = re.compile(
    r'class="code-file-caption">.*?class="code-file-name[^>]*>(?P<name>.*?)</code>'
    r'(?P<part>.*?)class="code-file-download">.*?class="[^"]*\bdownload\b[^>]*?href="(?P<link>[^"]+)"',
    re.S,
)
"""The line above a file: its path, what it changes or which part it is, and the download beside it."""


def wrong_downloads(site: Path, root: Path) -> tuple[list[str], set[str]]:
    """Compare the download beside every file with the file.

    Returns:
        What is wrong, and the paths of all files that can be downloaded, or the names of those that a page changes.
    """
    wrong, found = [], set()
    for path in sorted(site.rglob("*.html")):
        for caption in CAPTION.finditer(path.read_text(encoding="utf-8")):
            name = unescape(re.sub("<[^>]+>", "", caption["name"]))
            target = path.parent / unquote(caption["link"])
            found.add(name)
            earlier = re.search(r', from .*?href="([^"]+)"', caption["part"], re.S)
            found |= {unquote(Path(earlier[1]).name)} if earlier else set()
            if not target.is_file() or target.read_bytes() != (root / name).read_bytes():
                wrong.append(f"{path.relative_to(site)}: {name}: {caption['link']}")
    return wrong, found


def test_downloads(built_site, included):
    """The download beside every file gives its bytes."""
    wrong, found = wrong_downloads(built_site, ROOT)
    drivers = {name for name in included if Path(name).name.startswith("plot_")}

    assert wrong == []
    assert {name for name in {*included} - drivers - found if Path(name).name not in found} == set()


def test_vendored_libraries_are_as_released():
    """Each JavaScript library is the file of its release, with its licence beside it."""
    vendor = ROOT / "docs" / "_static" / "vendor"
    records = sorted(vendor.glob("*.json"))
    for record in records:
        said = json.loads(record.read_text())
        assert hashlib.sha256(record.with_suffix(".js").read_bytes()).hexdigest() == said["sha256"], record.name
        assert re.fullmatch(r"\d+\.\d+\.\d+", said["version"])
        assert record.with_suffix(".LICENSE").is_file()

    assert {record.stem for record in records} == {file.stem for file in vendor.glob("*.js")} != set()
