"""What each page of the real site says of itself, and its twin for programs that read text."""

from __future__ import annotations

import re
import struct
from html import unescape
from pathlib import Path
from urllib.parse import urljoin

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
BASE = "https://srunbook.readthedocs.io/en/latest/"
GENERATED = {"genindex", "py-modindex", "search"}


def names(site: Path) -> list[str]:
    """Return the names of all pages of a site, without those that only send readers to another."""
    pages = [path for path in site.rglob("*.html") if 'http-equiv="refresh"' not in path.read_text(encoding="utf-8")]
    return sorted(path.relative_to(site).with_suffix("").as_posix() for path in pages)


def problems(html: str) -> list[str]:
    """List what the head of a page lacks, and headings too many."""
    found = []
    headings = len(re.findall(r"<h1[ >]", html))
    if headings != 1:
        found.append(f"{headings} h1")
    descriptions = re.findall(r'<meta (?=[^>]*name="description")[^>]*content="([^"]*)"', html)
    if len(descriptions) != 1:
        return [*found, f"{len(descriptions)} descriptions"]
    text = unescape(descriptions[0])
    if not 50 <= len(text) <= 160:
        found.append(f"description of {len(text)} characters: {text}")
    if re.search(r"\.\.\.$|\w-$", text):
        found.append(f"description cut: {text}")
    return found


def test_every_page_has_one_heading_and_one_description(built_site):
    """Every page has one h1, and one description of 50 to 160 characters that ends with a word."""
    pages = names(built_site)
    found = [
        f"{name}: {problem}"
        for name in pages
        for problem in problems((built_site / f"{name}.html").read_text(encoding="utf-8"))
    ]

    assert not found
    assert len(pages) > 100


def test_only_the_gallery_loads_what_it_needs(built_site):
    """The style sheets and the script of the gallery are on its pages, and on no other."""
    html = {name: (built_site / f"{name}.html").read_text(encoding="utf-8") for name in names(built_site)}
    loading = {name for name, text in html.items() if re.search(r"""(?:href|src)="[^"]*_static/sg[_-]""", text)}

    assert loading == {name for name in html if name.startswith("gallery/")}
    assert len(loading) > 10


META = '<meta content="{}" name="description" />'
LONG = "A description that is long enough for a search engine."


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        (f"<h1>a</h1>{META.format(LONG)}", None),
        (META.format(LONG), "0 h1"),
        (f"<h1>a</h1><h1 id='b'>b</h1>{META.format(LONG)}", "2 h1"),
        ("<h1>a</h1>", "0 descriptions"),
        (f"<h1>a</h1>{META.format(LONG)}{META.format(LONG)}", "2 descriptions"),
        (f"<h1>a</h1>{META.format('Short.')}", "description of 6 characters: Short."),
        (f"<h1>a</h1>{META.format(LONG * 3)}", f"description of 162 characters: {LONG * 3}"),
        (f"<h1>a</h1>{META.format(LONG + ' And mo...')}", f"description cut: {LONG} And mo..."),
    ],
)
def test_problem_is_found(html, problem):
    """A heading that is missing or double, and a description that is missing, double, short, long or cut, are named."""
    assert problems(html) == ([problem] if problem else [])


def test_written_pages_describe_themselves():
    """A page that somebody wrote has its description in its front matter, and it is not cut."""
    elsewhere = {"troubleshooting", "tools", "gallery"}  # from the entry's fields; from the first sentences
    pages = [
        path
        for path in sorted(DOCS.rglob("*"))
        if path.suffix in (".md", ".rst") and path.relative_to(DOCS).parts[0] not in elsewhere
    ]
    found = {
        path.relative_to(DOCS).as_posix(): re.search(r"(?m)^ +:?description: (.*)$", path.read_text(encoding="utf-8"))
        for path in pages
    }

    assert len(pages) > 60
    assert [name for name, line in found.items() if line is None] == []
    lengths = {name: len(line[1].strip('"')) for name, line in found.items() if line}
    assert {name: length for name, length in lengths.items() if not 50 <= length <= 160} == {}


@pytest.mark.parametrize("section", ["guides", "tools", "performance", "reference", "about"])
def test_index_links_to_its_pages(section):
    """The index of a section leads to each of its pages, and to the first page of each folder, with some words."""
    index = (DOCS / section / "index.md").read_text(encoding="utf-8").partition("```{toctree}")[0]
    folder = DOCS / section
    pages = {path.stem for path in folder.glob("*.md")} - {"index"}
    pages |= {f"{path.parent.name}/index" for path in folder.glob("*/index.*")}
    linked = set(re.findall(r"(?m)^:link: (\S+)\n:link-type: doc\n\n\S.{20,}", index))
    linked |= set(re.findall(r"\]\(([\w-]+)\.md\)` *\|", index)) | set(re.findall(r"\]\(([\w-]+)\.md\) \| \S", index))

    assert pages
    assert pages - linked == set()


def test_every_page_has_a_twin(built_site):
    """Every page made from a source lies beside itself as Markdown, and names that file in its head."""
    for name in set(names(built_site)) - GENERATED - {"404"}:
        html = (built_site / f"{name}.html").read_text(encoding="utf-8")
        found = re.search(r'<link rel="alternate" type="text/markdown" href="([^"]+)">', html)

        assert found, name
        twin = (built_site / name).parent / found[1]
        assert twin.read_text(encoding="utf-8").startswith("# "), name


def test_twin_holds_what_the_page_shows(built_site, included):
    """The twin of a page holds each file that the page shows whole, and links to twins."""
    guide = "guides/torchrun/several-nodes"
    twin = (built_site / f"{guide}.md").read_text(encoding="utf-8")
    shown = [name for name, pages in included.items() if guide in pages and name.endswith(".sbatch")]
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", twin) if "://" not in link and "_downloads" not in link]

    assert shown
    for name in shown:
        assert (ROOT / name).read_text(encoding="utf-8").rstrip("\n") in twin, name
    assert "Drawing: Who starts whom" in twin
    assert "| Line | Change it to |\n|---|---|\n| `--partition`" in twin
    assert len(links) > 10
    assert all((built_site / guide).parent.joinpath(link).resolve().is_file() for link in links), links


def test_list_for_programs_is_complete(built_site):
    """`llms.txt` begins with the site's name, and lists every page with a twin that exists and a description."""
    text = (built_site / "llms.txt").read_text(encoding="utf-8")
    lines = re.findall(rf"(?m)^- \[(.+)\]\({re.escape(BASE)}(\S+)\.md\): (.{{40,}})$", text)
    listed = [name for _, name, _ in lines]

    assert text.startswith("# srunbook\n\n> ")
    assert sorted(listed) == sorted(set(names(built_site)) - GENERATED - {"404"})
    assert text.index("## Guides") < text.index("## Tools") < text.index("## Reference")


def test_icon_and_card(built_site):
    """Every page names the icon and one card for previews: a picture of 1200 by 630 pixels with a text."""
    for name in ("index", "guides/torchrun/index", "troubleshooting/index"):
        html = (built_site / f"{name}.html").read_text(encoding="utf-8")
        icon = re.search(r'<link rel="shortcut icon" href="([^"?]+)', html)
        card = re.search(r'<meta property="og:image" content="([^"]+)"', html)

        assert icon, name
        assert (built_site / name).parent.joinpath(icon[1]).resolve() == (built_site / "_static/favicon.svg").resolve()
        assert card, name
        assert card[1] == urljoin(BASE, "_static/social-card.png")
        assert re.search(r'<meta property="og:image:alt" content="srunbook[^"]{20,}"', html), name
        assert 'name="twitter:card" content="summary_large_image"' in html
    picture = (built_site / "_static" / "social-card.png").read_bytes()
    assert struct.unpack(">II", picture[16:24]) == (1200, 630)
    assert len(picture) < 300_000


def test_preview_and_description_agree(built_site):
    """The preview of a page says what its description says."""
    for name in ("index", "start/first-run", "troubleshooting/torch-port-in-use"):
        html = (built_site / f"{name}.html").read_text(encoding="utf-8")
        description = re.search(r'<meta (?=[^>]*name="description")[^>]*content="([^"]*)"', html)
        preview = re.search(r'<meta property="og:description" content="([^"]*)"', html)

        assert description, name
        assert preview, name
        assert unescape(description[1]) == unescape(preview[1])


PRODUCTS = ("DeepSpeed", "Megatron", "ZeRO")
"""Names that readers of this guide search for, and that it does not teach."""


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_product_among_the_keywords_is_named(product):
    """Where a name that readers search for finds the guide about large models, its first page says a word about it."""
    pages = [path.read_text(encoding="utf-8") for path in sorted((DOCS / "guides" / "does-not-fit").glob("*.md"))]
    first = (DOCS / "guides" / "does-not-fit" / "index.md").read_text(encoding="utf-8")

    assert any(product in page.split("---")[1] for page in pages)
    assert product in first.split("---", 2)[2]
