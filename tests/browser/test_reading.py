"""Code, figures and plots are readable: on a wide screen, by keyboard and finger, on paper, in the dark."""

from __future__ import annotations

import pytest

PAGES = [
    "guides/torchrun/convert.html",
    "guides/jax-multinode/time-limit.html",
    "guides/svgd/speed.html",
    "tools/generate.html",
    "performance/index.html",
    "troubleshooting/torch-port-in-use.html",
]
SHOW_ALL = ".sd-tab-content { display: block !important }"
CUT = """() => {
    document.querySelectorAll("details").forEach(details => details.open = true);
    const page = document.querySelector("article").clientWidth;
    return [...document.querySelectorAll("article pre, article .table-wrapper")]
        .filter(box => box.scrollWidth > box.clientWidth)
        .map(box => ({ text: box.textContent.trim().slice(0, 60), width: box.clientWidth, page,
                       longest: Math.max(...box.textContent.split("\\n").map(line => line.length)) }));
}"""


def go(page, site, names):
    """Go to one page after the other, with what tabs hide shown."""
    for name in names:
        assert page.goto(site + name).ok, name
        page.add_style_tag(content=SHOW_ALL)
        yield name


def test_code_uses_the_room_beside_it(open_page, site, page_names, pytestconfig):
    """In a window of 1400 pixels no line of code of up to 115 characters is cut, and paragraphs stay narrow."""
    page = open_page("index.html", width=1400)
    names = page_names if pytestconfig.getoption("--full") else PAGES
    cut = [f"{name}: {box}" for name in go(page, site, names) for box in page.evaluate(CUT) if box["longest"] <= 115]

    assert cut == []

    page.goto(f"{site}guides/torchrun/convert.html")
    widths = page.evaluate("[...document.querySelectorAll('article section > p')].map(p => p.clientWidth)")
    code = page.evaluate("Math.max(...[...document.querySelectorAll('article pre')].map(pre => pre.clientWidth))")

    assert max(widths) <= 46 * 16
    assert code > 46 * 16


TALLEST = 7000
"""Pixels that a chapter of a guide may be high, in a window of 1400 pixels."""


def test_chapters_are_not_too_long(open_page, site, page_names):
    """No chapter of a guide is higher than a reader scrolls."""
    chapters = [name for name in page_names if name.startswith("guides/")]
    assert len(chapters) > 40
    page = open_page("index.html", width=1400)
    heights = {}
    for name in chapters:
        assert page.goto(site + name).ok, name
        heights[name] = page.evaluate("document.documentElement.scrollHeight")

    assert {name: height for name, height in heights.items() if height > TALLEST} == {}


def test_code_of_scripts(open_page):
    """A line `#SBATCH` has other colours than a comment; a copy button that the keyboard reaches can be seen."""
    page = open_page("guides/torchrun/several-nodes.html")
    colours = """kind => [...document.querySelectorAll(".highlight-sbatch " + kind)]
        .map(part => [part.textContent, getComputedStyle(part).color])"""
    comments = page.evaluate(colours, ".c1")
    directives = [found for found in page.evaluate(colours, ".k") if found[0] == "#SBATCH"]

    assert comments
    assert directives
    assert not [text for text, _ in comments if text.startswith("#SBATCH")]
    assert not {colour for _, colour in comments} & {colour for _, colour in directives}

    button = page.locator("article button.copybtn").first
    page.keyboard.press("Tab")
    button.focus()
    page.wait_for_function("getComputedStyle(document.activeElement).opacity === '1'")

    assert button.evaluate("button => button.matches(':focus-visible')")


@pytest.mark.parametrize("name", ["guides/torchrun/convert.html", "guides/svgd/speed.html"])
def test_print(open_page, name):
    """On paper no code and no table is cut, and what one click opens is open."""
    page = open_page(name, width=700)
    page.emulate_media(media="print")
    cut = page.evaluate(
        """[...document.querySelectorAll("article pre, article .table-wrapper")]
            .filter(box => box.scrollWidth > box.clientWidth + 1).map(box => box.textContent.trim().slice(0, 60))"""
    )
    closed = page.evaluate(
        """[...document.querySelectorAll("article details")].filter(details =>
            [...details.children].slice(1).every(child => !child.getBoundingClientRect().height)).length"""
    )

    assert page.locator("article details").count() > 0
    assert cut == []
    assert closed == 0


@pytest.mark.parametrize(
    ("scheme", "media", "turned"),
    [("light", "screen", False), ("light", "print", False), ("dark", "screen", True), ("dark", "print", False)],
)
def test_plots_are_turned_in_the_dark_only(open_page, scheme, media, turned):
    """With the theme "auto", a plot changes its colours on a dark screen, and neither in light nor on paper."""
    page = open_page("gallery/gloo_ddp/plot_scaling.html", scheme=scheme)
    page.emulate_media(media=media)
    filters = page.evaluate(
        "[...document.querySelectorAll('img.sphx-glr-single-img')].map(image => getComputedStyle(image).filter)"
    )

    assert filters
    assert all((one != "none") == turned for one in filters)
