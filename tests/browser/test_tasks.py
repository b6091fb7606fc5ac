"""What readers come for, followed from the first page: at most three clicks to the answer."""

from __future__ import annotations

SEVERAL_NODES = "a:has-text('Run it on several nodes') >> visible=true >> nth=0"


def door(title, link):
    """Return the selector of a link in one of the doors."""
    return f'article .sd-card:has(.sd-card-title:has-text("{title}")) a:has-text("{link}") >> nth=0'


TASKS = {
    "which-lines-to-change": ([], "change the lines marked EDIT"),
    "two-nodes-with-conda": ([door("one GPU", "PyTorch"), SEVERAL_NODES], "with conda source ~/miniforge3/"),
    "laptop": ([door("laptop", "I want to try it on my laptop")], "torchrun --standalone"),
    "cpu-nodes": ([door("CPU nodes", "I only have CPU nodes"), SEVERAL_NODES], "slurm/gloo_ddp/"),
    "24-hours": ([door("24 hours", "PyTorch")], "#SBATCH --requeue"),
    "does-not-fit": ([door("doesn't fit", "My model doesn't fit")], "no longer fits on one GPU"),
    "does-not-fit-in-jax": ([door("doesn't fit", "JAX")], "which axis of a mesh divides which array"),
    "jax-without-a-container": ([door("one GPU", "JAX"), SEVERAL_NODES], 'source "$HOME/jax-env/bin/activate"'),
    "new-script": (["a:has-text('Get your script') >> visible=true >> nth=0"], "#SBATCH --nodes="),
}
"""The clicks from the first page, and what the answer says."""


def test_three_clicks(open_page, site):
    """The links that a reader takes are there, and the last page has the answer."""
    page = open_page("index.html")
    for task, (clicks, answer) in TASKS.items():
        page.goto(f"{site}index.html")
        for click in clicks:
            page.locator(click).click()
            page.wait_for_load_state()

        assert len(clicks) <= 3, task
        assert answer in " ".join(page.locator("article").text_content().split()), task
