"""What each page of the real site says of itself, and its twin for programs that read text."""

from __future__ import annotations

import os
import re
from html import unescape
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
BASE = os.environ.get("READTHEDOCS_CANONICAL_URL", "https://srunbook.readthedocs.io/en/latest/")
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
    """Every page has one h1 and one description of 50 to 160 characters, cut at a word; no guides share a title."""
    pages = names(built_site)
    found = [
        f"{name}: {problem}"
        for name in pages
        for problem in problems((built_site / f"{name}.html").read_text(encoding="utf-8"))
    ]

    guides = [(built_site / f"{name}.html").read_text(encoding="utf-8") for name in pages if name.startswith("guides/")]

    assert not found
    assert len({re.findall("<title>(.*?)</title>", html)[0] for html in guides}) == len(guides)
    assert len(pages) > 100
    assert problems("<h1>a</h1><h1>b</h1>") == ["2 h1", "0 descriptions"]


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
    assert "| Line | Change it to |\n| --- | --- |\n| `--partition`" in twin
    assert len(links) > 10
    assert all((built_site / guide).parent.joinpath(link).resolve().is_file() for link in links), links


def test_twin_names_what_opens(built_site):
    """The twin of a page names each part that one click opens, without its arrow."""
    twin = (built_site / "guides/torchrun/time-limit.md").read_text(encoding="utf-8")

    assert "\n**The whole file requeue.sbatch**\n" in twin
    assert "\n**The other lines of the script**\n" in twin


def test_list_for_programs_is_complete(built_site):
    """`llms.txt` begins with the site's name, and lists every page with a twin that exists and a description."""
    text = (built_site / "llms.txt").read_text(encoding="utf-8")
    lines = re.findall(rf"(?m)^- \[(.+)\]\({re.escape(BASE)}(\S+)\.md\): (.{{40,}})$", text)
    listed = [name for _, name, _ in lines]

    assert text.startswith("# srunbook\n\n> ")
    assert sorted(listed) == sorted(set(names(built_site)) - GENERATED - {"404"})
    assert text.index("## Guides") < text.index("## Tools") < text.index("## Reference")
