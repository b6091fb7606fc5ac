"""The first page and the page for missing addresses, in a browser."""

from __future__ import annotations

import functools
import http.server
import threading
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe

SITE = Path(__file__).resolve().parents[2] / "build" / "site"
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], "resultTypes": ["violations"]}
DOORS = [
    "I have a program for one GPU",
    "It does not fit",
    "24 hours are not enough",
    "I have CPU nodes only",
    "I want to try it on my laptop",
    "I have an error message",
]


def test_doors(open_page):
    """Each of the six doors, and each link below it, leads to a page and, where it names one, to an anchor of it."""
    page = open_page("index.html")
    titles = page.locator("article .sd-card-title").all_inner_texts()
    links = [link.get_attribute("href") for link in page.locator("article .sd-card a").all()]

    assert titles == DOORS
    assert len(links) > 15
    for link in links:
        answer = page.request.get(urljoin(page.url, link))
        anchor = urlsplit(link).fragment
        assert answer.ok, link
        assert not anchor or f'id="{anchor}"' in answer.text(), link


def test_script_and_picture(open_page):
    """The first page shows a job script with the record of its run, beside a drawing on a wide window."""
    page = open_page("index.html", width=1400)
    script, picture = page.locator(".hero-script").bounding_box(), page.locator(".hero-picture").bounding_box()

    assert "Ran on Slurm" in page.locator(".hero .badge-line").inner_text()
    assert picture["x"] >= script["x"] + script["width"]
    assert picture["y"] < script["y"] + script["height"]
    assert page.evaluate(
        "(() => { const pre = document.querySelector('.hero pre'); return pre.scrollWidth <= pre.clientWidth })()"
    )


def test_chooser_by_keyboard(open_page):
    """Three answers, given with Tab, arrows and space, leave one guide; the next Tab and Enter lead there."""
    page = open_page("index.html")
    page.locator(".chooser-box input").first.focus()
    assert not page.locator("table.chooser").is_visible()
    page.keyboard.press("Space")
    assert page.locator(".chooser-answers li").count() == 3
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.keyboard.press("ArrowRight")
    checked = page.locator(".chooser-box input:checked").evaluate_all("inputs => inputs.map(input => input.value)")

    assert checked == ["PyTorch", "GPUs", "no"]
    assert page.locator(".chooser-answers li").count() == 1
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/guides/does-not-fit/index.html")


def test_chooser_gives_way(open_page):
    """An answer that no case has together with an earlier one drops the earlier one; "Start again" drops all."""
    page = open_page("index.html")
    page.get_by_label("JAX", exact=True).check()
    page.get_by_label("CPUs only").check()
    checked = page.locator(".chooser-box input:checked").evaluate_all("inputs => inputs.map(input => input.value)")
    answers = page.locator(".chooser-answers").inner_text()
    page.get_by_role("button", name="Start again").click()

    assert checked == ["CPUs only"]
    assert "gloo" in answers
    assert page.locator(".chooser-box input:checked").count() == 0
    assert page.locator(".chooser-answers li").count() == 0


def test_table_without_scripts(browser, site):
    """Without JavaScript the first page shows the chooser's table."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(site + "index.html")

    assert page.locator("table.chooser tbody tr").count() > 5
    assert page.locator("table.chooser").is_visible()
    context.close()


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        ("light", 1400),
        ("dark", 360),
        pytest.param("light", 360, marks=pytest.mark.full),
        pytest.param("dark", 1400, marks=pytest.mark.full),
    ],
)
def test_accessibility_with_answers(open_page, scheme, width):
    """With an answer given, axe finds nothing to complain about, and nothing is wider than the window."""
    page = open_page("index.html", width=width, scheme=scheme)
    page.get_by_label("JAX", exact=True).check()
    page.mouse.move(0, 0)
    found = Axe().run(page, options=RULES).response["violations"]

    assert [(violation["id"], violation["nodes"][0]["html"]) for violation in found] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(
    ("name", "opener"),
    [("start/first-run.html", "label.sd-tab-label >> text=JAX"), ("start/environments.html", "summary >> nth=0")],
    ids=["tab", "dropdown"],
)
def test_code_that_was_hidden_by_keyboard(open_page, name, opener):
    """Code that is too wide can be reached with the keyboard when its tab or dropdown opens."""
    page = open_page(name, width=360)
    before = page.locator("article pre:visible").count()
    page.locator("article").locator(opener).click()
    page.wait_for_function(
        """before => {
            const shown = [...document.querySelectorAll("article pre")].filter((pre) => pre.clientWidth);
            const wide = shown.filter((pre) => pre.scrollWidth > pre.clientWidth);
            return shown.length !== before && wide.length && wide.every((pre) => pre.tabIndex === 0);
        }""",
        arg=before,
        timeout=5_000,
    )


class Host(http.server.SimpleHTTPRequestHandler):
    """Serves the site below a folder, and its 404.html for every other address, as hosts do."""

    def __init__(self, *arguments: object, folder: str, **options: object) -> None:
        self.folder = folder
        super().__init__(*arguments, directory=SITE, **options)

    def send_head(self):
        """Send a file of the site, or the page for missing addresses with status 404."""
        path = urlsplit(self.path).path
        if path.startswith(self.folder):
            self.path = "/" + path.removeprefix(self.folder)
            if Path(self.translate_path(self.path)).is_file():
                return super().send_head()
        self.send_response(404)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        return (SITE / "404.html").open("rb")

    def log_message(self, format, *args):
        """Say nothing."""


@pytest.mark.parametrize("folder", ["/", pytest.param("/en/latest/", marks=pytest.mark.full), "/deep/in/a/host/"])
def test_missing_page(browser, folder):
    """Wherever the site lies and however deep the missing address is, its page has its style and leads on."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Host, folder=folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    context = browser.new_context()
    page = context.new_page()
    try:
        root = f"http://127.0.0.1:{server.server_port}{folder}"
        answer = page.goto(f"{root}guides/no/such/page.html?x=1")
        styled = page.evaluate("getComputedStyle(document.querySelector('.sidebar-tree a')).textDecorationLine")
        icon = page.locator(".content-icon-container .theme-toggle svg:visible").first.bounding_box()
        skip = page.locator("a.skip-to-content").evaluate("link => link.href")
        page.locator("article").get_by_role("link", name="the guides").click()
        page.wait_for_url(f"{root}guides/index.html")

        assert answer.status == 404
        assert styled == "none"
        assert icon["width"] > 10
        assert skip == f"{root}guides/no/such/page.html?x=1#furo-main-content"
        assert page.locator("h1").inner_text().startswith("Guides")
    finally:
        context.close()
        server.shutdown()
        thread.join()
        server.server_close()
