"""The built site in a browser."""

from __future__ import annotations

import gzip
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "site"

MAIN_PAGES = [
    "index.html",
    "start/install.html",
    "start/first-run.html",
    "start/how-to-read.html",
    "guides/jax-multinode/several-nodes.html",
    "gallery/index.html",
    "gallery/jax_multinode/plot_allreduce.html",
    "tools/command/cluster.html",
    "troubleshooting/index.html",
    "performance/how-we-measure.html",
    "reference/glossary.html",
    "reference/formats.html",
    "reference/api-ranklog.html",
    "about/contributing.html",
    "search.html",
]


SEVERAL_NODES = ["guides/jax-multinode/several-nodes.html", "guides/torchrun/several-nodes.html"]
"""Chapters with drawings and wide tables."""

MAIN_BUTTONS = [
    ("troubleshooting/index.html", "", ".paste-main"),
    ("index.html", ".fit-open-page", ".fit-main"),
    ("index.html", ".chooser-box label", ".chooser-box input:checked + span"),
]
"""The main button of each form: its page, what opens the form, and its selector."""

WIDTH = "Math.max(...[document.documentElement, ...document.querySelectorAll('.content')].map(box => box.scrollWidth))"
"""How wide a page is: the theme lets what stands in an article scroll inside a box as wide as the window."""


def blocks(page):
    """Return the files that a page shows whole: path and frame of each."""
    page.add_style_tag(content=".sd-tab-content { display: block !important }")
    page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
    for box in page.locator("article .code-file:has(.code-file-name)").all():  # not the further parts of a diff
        if not (box.locator(".code-file-part").first.text_content() if box.locator(".code-file-part").count() else ""):
            yield box.locator(".code-file-name").first.text_content(), box


def each(page, names, site):
    """Go to one page after the other."""
    for name in names:
        assert page.goto(site + name).ok, name
        yield name


def test_copy_button(open_page):
    """The copy button of a file puts its text on the clipboard, without the last end of line, and without a prompt."""
    page = open_page("start/first-run.html")
    shown = list(blocks(page))

    def copied(box):
        page.evaluate("navigator.clipboard.writeText('nothing yet')")
        box.hover()
        box.locator("button.copybtn").first.click()
        page.wait_for_function("navigator.clipboard.readText().then(text => text !== 'nothing yet')")
        return page.evaluate("navigator.clipboard.readText()")

    assert shown
    for path, box in shown:
        assert copied(box) == (ROOT / path).read_text(encoding="utf-8").removesuffix("\n"), path
    assert copied(page.locator("div.highlight-console").first) == "pip install torch"


def test_index_of_failures_is_filtered(open_page):
    """The index shows the entries of one framework and one symptom, and only the stages that have some."""
    page = open_page("troubleshooting/index.html")
    every = page.locator(".failure-index > li:visible").count()
    framework, symptom = page.locator(".failure-filter select").all()
    framework.select_option(label="JAX")
    symptom.select_option(label="hangs")
    shown = page.locator(".failure-index > li:visible")
    facts = shown.locator(".failure-where").all_inner_texts()
    stages = page.locator("article section section:visible").count()
    framework.select_option("")
    symptom.select_option("")

    assert 0 < len(facts) < every
    assert all(fact.startswith("hangs") and "JAX" in fact for fact in facts)
    assert 0 < stages < 7
    assert page.locator(".failure-index > li:visible").count() == every


def test_theme_toggle(open_page):
    """The theme can be switched to dark, changes the colours, and stays switched on the next page."""
    page = open_page("index.html")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    for _ in range(3):
        page.locator(".content-icon-container .theme-toggle").click()
        if page.locator("body").get_attribute("data-theme") == "dark":
            break
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    drawing = page.evaluate("getComputedStyle(document.querySelector('.drawing svg')).color")
    page.locator("article .sd-card a").first.click()
    page.wait_for_url("**/guides/index.html")

    assert light == "rgb(255, 255, 255)"
    assert dark != light
    assert sum(int(part) for part in drawing.strip("rgb()").split(",")) > 3 * 128  # light lines on a dark ground
    assert page.locator("body").get_attribute("data-theme") == "dark"


def test_scrolling_code_by_keyboard(open_page):
    """Code wider than the window can be reached with Tab and scrolled with the arrow keys."""
    page = open_page("start/first-run.html", width=360)
    wide = page.locator("article pre[tabindex='0']")

    assert wide.count() > 0
    for block in wide.all():
        assert block.get_attribute("role") == "region"
        assert block.get_attribute("aria-label")
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "PRE":
            break
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.activeElement.tagName === 'PRE' && document.activeElement.scrollLeft > 0")


def test_tabs_by_keyboard(open_page, site, page_names):
    """Wherever a page has tabs, the arrow keys choose among them."""
    with_tabs = [name for name in page_names if 'class="sd-tab-set' in (SITE / name).read_text(encoding="utf-8")]
    page = open_page("index.html")
    for name in each(page, with_tabs, site):
        tabs = page.locator("article .sd-tab-set > input")
        tabs.first.focus()
        page.keyboard.press("ArrowRight")
        assert tabs.nth(1).is_checked(), name

    assert with_tabs


@pytest.mark.timeout(1500)  # all pages take minutes
def test_accessibility(open_page, site, page_names, look, complaints, pytestconfig):
    """On one page of each kind, with `--full` on all, axe finds nothing to complain about, and no page is too wide."""
    found = []
    page = open_page("index.html", **look)
    assert set(MAIN_PAGES) <= {*page_names, "search.html"}
    for name in each(page, page_names if pytestconfig.getoption("--full") else MAIN_PAGES, site):
        found += complaints(page)
        wide = page.evaluate(WIDTH)
        found += [f"{name}: {wide} pixels wide"] if wide > look["width"] else []

    assert not found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_main_buttons_below_the_mouse(open_page, site, complaints, scheme):
    """The main button of each form is as legible below the mouse as elsewhere."""
    page = open_page("index.html", scheme=scheme)
    for name, opener, button in MAIN_BUTTONS:
        page.goto(site + name)
        if opener:
            page.locator(opener).first.click()
        page.locator(button).first.hover(force=True)  # an answer's input lies over it
        assert complaints(page, button) == [], name


def test_axe_complains(open_page, complaints):
    """As it is used here, axe does find a picture without a text and grey text on grey."""
    page = open_page("index.html")
    page.evaluate(
        "document.querySelector('article').innerHTML += '<img src=\"_static/printed.svg\">'"
        " + '<p style=\"color: #999; background: #aaa\">grey</p>'"
    )

    found = "\n".join(complaints(page))
    assert "image-alt" in found
    assert "color-contrast" in found


def test_drawings_and_tables(open_page, site):
    """On a screen of 360 pixels no text of a drawing is smaller than 11; tables show all columns, guides' on 1280."""
    small, cut = [], []
    page = open_page("index.html", width=360)
    for name in each(page, ["index.html", *SEVERAL_NODES], site):
        sizes = page.evaluate(
            """[...document.querySelectorAll('.drawing svg text')].map(text =>
                parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a)"""
        )
        assert sizes, name
        small += [f"{name}: {min(sizes):.1f}"] if min(sizes) < 11 else []
        page.set_viewport_size({"width": 360 if name == "index.html" else 1280, "height": 800})
        boxes = page.evaluate(
            "[...document.querySelectorAll('article .table-wrapper')].map(box => [box.scrollWidth, box.clientWidth])"
        )
        assert boxes, name
        cut += [f"{name}: {box}" for box in boxes if box[0] > box[1]]
        page.set_viewport_size({"width": 360, "height": 800})

    assert (small, cut) == ([], [])


def test_weight_of_a_page(open_page, site):
    """Style sheets and scripts weigh at most 80 kB compressed."""
    page = open_page("index.html")
    for name, own in (
        ("index.html", "my-cluster.js"),
        ("guides/torchrun/several-nodes.html", "my-cluster.js"),
        ("guides/does-not-fit/index.html", "memory.js"),
        ("troubleshooting/torch-port-in-use.html", "site.js"),
    ):
        page.goto(site + name)
        files, total = weight(page)
        assert own in files
        assert total <= 80_000, name


def weight(page):
    """Return the names of the style sheets and scripts that a page has loaded, and their bytes, compressed."""
    page.wait_for_load_state("networkidle")
    loaded = page.evaluate("performance.getEntriesByType('resource').map(entry => entry.name)")
    urls = [url for url in loaded if urlsplit(url).path.endswith((".css", ".js"))]
    names = [urlsplit(url).path.rpartition("/")[2] for url in urls]
    return names, sum(len(gzip.compress(page.request.get(url).body())) for url in urls)
