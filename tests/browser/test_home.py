"""The first page and the page for missing addresses, in a browser."""

from __future__ import annotations

from urllib.parse import urljoin, urlsplit

import pytest


def test_first_page(open_page):
    """Each door and each link below it leads to a page and an anchor; a script with its run is beside a drawing."""
    page = open_page("index.html", width=1400)
    titles = page.locator("article .sd-card-title").all_inner_texts()
    links = [link.get_attribute("href") for link in page.locator("article .sd-card a").all()]

    assert titles == [
        "I have a program for one GPU",
        "My model doesn't fit",
        "24 hours are not enough",
        "I only have CPU nodes",
        "I want to try it on my laptop",
        "I have an error message",
    ]
    assert len(links) > 15
    for link in links:
        answer = page.request.get(urljoin(page.url, link))
        anchor = urlsplit(link).fragment
        assert answer.ok, link
        assert not anchor or f'id="{anchor}"' in answer.text(), link

    script, picture = page.locator(".hero-script").bounding_box(), page.locator(".hero-picture").bounding_box()

    assert "Ran on Slurm" in page.locator(".hero .badge-line").inner_text()
    assert picture["x"] >= script["x"] + script["width"]
    assert picture["y"] < script["y"] + script["height"]
    assert page.evaluate(
        "(() => { const pre = document.querySelector('.hero pre'); return pre.scrollWidth <= pre.clientWidth })()"
    )


def test_chooser(open_page, site):
    """Three answers by the keyboard leave one guide, and Enter leads there; an answer drops one that it contradicts."""
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

    page.goto(f"{site}index.html")
    page.get_by_label("JAX", exact=True).check()
    page.get_by_label("CPUs only").check()
    checked = page.locator(".chooser-box input:checked").evaluate_all("inputs => inputs.map(input => input.value)")
    answers = page.locator(".chooser-answers").inner_text()
    page.get_by_role("button", name="Start again").click()

    assert checked == ["JAX", "CPUs only"]
    assert "The job script" in answers
    assert page.locator(".chooser-box input:checked").count() == 0
    assert page.locator(".chooser-answers li").count() == 0


def test_table_without_scripts(open_page):
    """Without JavaScript the first page shows the chooser's table."""
    page = open_page("index.html", java_script_enabled=False)

    assert page.locator("table.chooser tbody tr").count() > 5
    assert page.locator("table.chooser").is_visible()


def test_accessibility_with_answers(open_page, look, complaints):
    """With an answer given, axe finds nothing to complain about, and nothing is wider than the window."""
    page = open_page("index.html", **look)
    page.get_by_label("JAX", exact=True).check()
    page.mouse.move(0, 0)

    assert complaints(page) == []


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


def test_missing_page(open_page, site):
    """However deep the missing address is, its page has its style and leads on."""
    page = open_page("index.html")
    answer = page.goto(f"{site}guides/no/such/page.html?x=1")
    styled = page.evaluate("getComputedStyle(document.querySelector('.sidebar-tree a')).textDecorationLine")
    icon = page.locator(".content-icon-container .theme-toggle svg:visible").first.bounding_box()
    skip = page.locator("a.skip-to-content").evaluate("link => link.href")
    page.locator("article").get_by_role("link", name="the guides").click()
    page.wait_for_url(f"{site}guides/index.html")

    assert answer.status == 404
    assert styled == "none"
    assert icon["width"] > 10
    assert skip == f"{site}guides/no/such/page.html?x=1#furo-main-content"
    assert page.locator("h1").inner_text().startswith("Guides")
