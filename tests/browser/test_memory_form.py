"""The form on the first page of the guide *When it does not fit*."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe

PAGE = "guides/does-not-fit/index.html"
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], "resultTypes": ["violations"]}


def cells(page):
    """Return the figures that the form shows."""
    return page.locator(".memory-answer td").all_text_contents()


def test_form_follows_its_fields(open_page):
    """It begins with the recorded command, answers each change, and says what is wrong with a field."""
    page = open_page(PAGE)
    assert cells(page) == ["28.00", "28.00", "56.00", "112.00", "1.75", "1.75", "3.50", "7.00"]
    assert page.locator(".memory-answer code").text_content() == "srunbook memory 7B --gpus 16"

    page.locator("#memory-sharing").fill("8")
    page.locator("#memory-precision").select_option("bf16")
    assert cells(page)[-1] == "7.00"
    assert page.locator(".memory-answer code").text_content().endswith("--gpus 16 --sharing 8 --precision bf16")

    page.locator("#memory-sharing").fill("5")
    assert page.locator(".memory-problem").text_content() == "16 GPUs do not divide into groups of 5: choose a divisor"
    assert page.locator("#memory-sharing").get_attribute("aria-invalid") == "true"
    assert not Axe().run(page, options=RULES).response["violations"]


def test_page_without_javascript(browser, site):
    """The command and what it printed are on the page."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(site + PAGE)
    shown = "\n".join(page.locator(".memory-calculator pre").all_text_contents())
    context.close()

    assert "srunbook memory 7B --gpus 16" in shown
    assert "112.00" in shown
