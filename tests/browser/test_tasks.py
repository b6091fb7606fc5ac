"""What readers come for, followed from the first page: at most three clicks to the answer."""

from __future__ import annotations

import pytest

SEVERAL_NODES = "a:has-text('Run it on several nodes') >> visible=true >> nth=0"
ZIP = "article a.guide-zip"
LINE = "[rank3]: torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
LINE += "address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"


def door(title, link):
    """Return the selector of a link in one of the doors."""
    return f"article .sd-card:has(.sd-card-title:has-text('{title}')) a:has-text('{link}') >> nth=0"


TASKS = {
    "which-lines-to-change": ([], "change the lines marked EDIT"),
    "two-nodes-with-conda": ([door("one GPU", "PyTorch"), SEVERAL_NODES], "with conda source ~/miniforge3/"),
    "laptop": ([door("laptop", "I want to try it on my laptop")], "torchrun --standalone"),
    "cpu-nodes": ([door("CPU nodes", "I have CPU nodes only"), SEVERAL_NODES], "slurm/gloo_ddp/"),
    "24-hours": ([door("24 hours", "PyTorch")], "#SBATCH --requeue"),
    "does-not-fit": ([door("does not fit", "It does not fit")], "no longer fits on one GPU"),
    "does-not-fit-in-jax": ([door("does not fit", "JAX")], "which axis of a mesh divides which array"),
    "jax-without-a-container": ([door("one GPU", "JAX"), SEVERAL_NODES], 'source "$HOME/jax-env/bin/activate"'),
    "new-script": (["a:has-text('Get your script') >> visible=true >> nth=0"], "#SBATCH --nodes="),
}
"""The clicks from the first page, and what the answer says."""


@pytest.mark.parametrize("task", TASKS)
def test_three_clicks(open_page, task):
    """The links that a reader takes are there, and the last page has the answer."""
    clicks, answer = TASKS[task]
    page = open_page("index.html")
    for click in clicks:
        page.locator(click).click()
        page.wait_for_load_state()

    assert len(clicks) <= 3
    assert answer in " ".join(page.locator("article").text_content().split())


def test_one_zip(open_page):
    """The third click downloads all files of a guide."""
    page = open_page("index.html")
    page.locator(door("one GPU", "I have a program for one GPU")).click()
    page.locator("article .sd-card:has(a[href='torchrun/index.html'])").click()
    with page.expect_download() as waiting:
        page.locator(ZIP).click()

    assert waiting.value.suggested_filename == "torchrun.zip"


def test_an_error_message(open_page):
    """Pasted into the search box, a line of a log needs one click."""
    page = open_page("index.html")
    page.locator(".sidebar-search").click()
    page.locator(".sidebar-search").press_sequentially(LINE)
    page.locator("#search-list:not([hidden]) a.search-option").first.click()
    page.wait_for_url("**/troubleshooting/torch-port-in-use.html**")
