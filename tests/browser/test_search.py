"""The site's search in a browser: the box beside each page, and the page of results."""

from __future__ import annotations

import re
from urllib.parse import quote

LINE = "[rank5]: The server socket has failed to bind to 0.0.0.0:12211 (errno: 98 - Address already in use)."
ENTRY = "troubleshooting/torch-port-in-use.html"


def results(page):
    """Wait for the page of results, and return its links to sections."""
    page.wait_for_selector("#search-results li")
    return [link.get_attribute("href") for link in page.locator("#search-results .search-title a").all()]


def type_in_box(page, text):
    """Type into the box beside a page, and wait for the list of results."""
    box = page.locator(".sidebar-search")
    box.click()
    box.press_sequentially(text)
    page.wait_for_selector("#search-list:not([hidden]) a.search-option")
    return box


def chosen(page):
    """Return the option that the arrow keys have chosen, as the box names it."""
    name = page.locator(".sidebar-search").get_attribute("aria-activedescendant")
    return page.locator(f"#{name}") if name else None


def test_keys_in_the_box(open_page):
    """The first click loads the search; arrow keys choose among results, Escape closes the list, Enter opens one."""
    page = open_page("guides/torchrun/several-nodes.html")
    page.wait_for_load_state("networkidle")
    loaded = (
        "performance.getEntriesByType('resource').filter(entry => /search-index|minisearch/.test(entry.name)).length"
    )
    before = page.evaluate(loaded)
    box = type_in_box(page, "rendezvous")
    assert (before, page.evaluate(loaded)) == (0, 2)

    box.press("Escape")
    assert page.locator("#search-list").is_hidden()
    assert box.get_attribute("aria-expanded") == "false"
    box.press_sequentially(" timeout")
    page.wait_for_selector("#search-list a.search-all[href$='timeout']")
    options = page.locator("#search-list a")
    last = options.count() - 1
    box.press("ArrowUp")
    assert chosen(page).get_attribute("id") == f"search-option-{last}"
    box.press("ArrowDown")
    assert chosen(page) is None
    box.press("ArrowDown")
    assert chosen(page).get_attribute("aria-selected") == "true"
    wanted = chosen(page).get_attribute("href")
    box.press("Enter")
    page.wait_for_url(wanted)


def test_pasted_line(open_page):
    """A pasted log line leads to its entry, in the list and, with Enter, on the page of results, with the fix."""
    page = open_page("index.html")
    page.evaluate("text => navigator.clipboard.writeText(text)", LINE)
    box = page.locator(".sidebar-search")
    box.click()
    page.keyboard.press("Control+V")
    page.wait_for_selector("#search-list a.search-matched")
    assert page.locator("#search-list a").first.get_attribute("href").endswith(ENTRY)
    box.press("Enter")
    page.wait_for_selector("#search-results li")

    assert page.locator("#search-query").input_value() == LINE
    assert results(page)[0].endswith(ENTRY)
    first = page.locator("#search-results li").first
    assert "Your message" in first.inner_text()
    assert "export MASTER_PORT" in first.locator(".search-fix code").inner_text()


def test_results_by_section(open_page, site):
    """The page of results has sections with their page and marked words; keys lead along; markup stays text."""
    page = open_page(f"search.html?q={quote('save a checkpoint <img src=x onerror=document.title=1>')}")
    links = results(page)
    assert page.locator("article img[src='x']").count() == 0
    assert page.locator("#search-query").input_value().endswith("=1>")
    assert any("#" in link for link in links[:5])
    assert page.locator(".search-trail").first.inner_text()
    assert page.locator(".search-excerpt mark").count() > 3
    for link in links[:5]:
        address, _, anchor = link.partition("#")
        assert address.startswith(site)
        assert not anchor or f'id="{anchor}"' in page.request.get(address).text()
    page.locator("#search-query").focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.href") == links[1]
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_url(links[0])


def test_nothing_found(open_page, site):
    """Words that no page has lead to suggestions, in the list and on the page of results."""
    page = open_page("search.html?q=xyzzyq+plughonk")
    links = results(page)
    assert len(links) >= 3
    assert all(page.request.get(link).ok for link in links)
    assert "Nothing has these words" in page.locator("#search-status").inner_text()
    type_in_box(page, "xyzzyq")
    assert page.locator("#search-list a.search-option").count() >= 3


def test_from_a_disk(open_page):
    """A site that somebody opens from a folder has a search, too."""
    page = open_page(f"search.html?q={quote(LINE)}", disk=True)

    assert re.fullmatch(rf"file://.*/build/site/{ENTRY}", results(page)[0])


def test_accessibility_of_results(open_page, look, complaints):
    """The page of results and the open list fit the window, and axe finds nothing to complain about."""
    page = open_page(f"search.html?q={quote(LINE)}", **look)
    results(page)
    if look["width"] < 500:
        page.locator("label.nav-overlay-icon, .mobile-header label[for=__navigation]").first.click()
        page.wait_for_timeout(400)  # the drawer slides in
    type_in_box(page, "checkpoint")
    list_box = page.locator("#search-list").bounding_box()

    assert complaints(page) == []
    assert list_box["x"] >= 0
    assert list_box["x"] + list_box["width"] <= look["width"]
