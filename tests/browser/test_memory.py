"""The form about the memory of a model."""

from __future__ import annotations

MEMORY = "guides/does-not-fit/index.html"


def cells(page):
    """Return the figures that the form shows."""
    return page.locator(".memory-answer td").all_text_contents()


def test_memory_form(open_page, complaints):
    """The form about memory begins with the recorded command, answers each change, and says what is wrong."""
    plain = open_page(MEMORY, java_script_enabled=False).locator(".memory-calculator pre").all_text_contents()
    assert all(word in "\n".join(plain) for word in ("srunbook memory 7B --gpus 16", "112.00"))
    page = open_page(MEMORY)
    assert cells(page) == ["28.00", "28.00", "56.00", "112.00", "1.75", "1.75", "3.50", "7.00"]
    assert page.locator(".memory-answer code").text_content() == "srunbook memory 7B --gpus 16"

    page.locator("#memory-sharing").fill("8")
    page.locator("#memory-precision").select_option("bf16")
    assert cells(page)[-1] == "7.00"
    assert page.locator(".memory-answer code").text_content().endswith("--gpus 16 --sharing 8 --precision bf16")

    page.locator("#memory-sharing").fill("5")
    assert page.locator(".memory-problem").text_content() == "16 GPUs do not divide into groups of 5: choose a divisor"
    assert page.locator("#memory-sharing").get_attribute("aria-invalid") == "true"
    assert complaints(page) == []
