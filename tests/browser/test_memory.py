"""The form about the memory of a model."""

from __future__ import annotations

MEMORY = "guides/does-not-fit/index.html"


def cells(page):
    """Return the figures that the form shows."""
    return page.locator(".memory-answer td").all_text_contents()


def test_memory_form(open_page, complaints):
    """The form about memory begins with the recorded command, answers each change, and says what is wrong."""
    plain = open_page(MEMORY, java_script_enabled=False).locator(".memory-calculator pre").all_text_contents()
    page = open_page(MEMORY)
    page.locator(".memory-verdict").wait_for()
    command = page.locator(".memory-answer code").text_content()
    verdict = page.locator(".memory-verdict").text_content()
    assert {*command.split()} == {*plain[0].removeprefix("$ ").split()}
    assert verdict in plain[1]
    assert all(figure in plain[1] for figure in cells(page))

    page.locator("#memory-shape").select_option("Llama 3.1 70B")
    assert page.locator("#memory-layers").input_value() == "80"
    assert page.locator(".memory-verdict").text_content().startswith("Nothing fits.")
    page.locator("#memory-gpus").fill("64")
    assert page.locator(".memory-verdict").text_content().startswith("Use FSDP, recomputing.")
    page.locator("#memory-layers").fill("40")
    assert page.locator("#memory-shape").input_value() == ""

    page.locator("#memory-gpus").fill("16")
    page.locator("#memory-sharing").fill("5")
    assert page.locator(".memory-problem").text_content() == "16 GPUs do not divide into groups of 5: choose a divisor"
    assert page.locator("#memory-sharing").get_attribute("aria-invalid") == "true"
    assert complaints(page) == []
