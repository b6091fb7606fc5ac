"""Scaling tables on pages are drawn from raw samples, and say what they rest on."""

from __future__ import annotations

import json

import pytest

STAMP = {
    "command": "python bench/scaling.py",
    "commit": "abc",
    "date": "2026-11-20",
    "machine": {"cores": 2, "cpu_quota": 0.5},
    "versions": {"torch": "2.13.0"},
    "parameters": {"batch": 64},
}
TIMES = {("100mbit", 1): 4.0, ("100mbit", 2): 3.2, ("300mbit", 1): 4.0, ("300mbit", 2): 2.5}
DATA = {
    **STAMP,
    "configurations": [
        {"name": f"{link} {nodes}", "parameters": {"link": link, "nodes": nodes}, "samples": {"step_s": [time] * 10}}
        for (link, nodes), time in TIMES.items()
    ],
}
STRONG = ":kind: strong\n:where: link=300mbit\n:alt: Two nodes are faster than one."


def directive(options: str) -> str:
    """Return a directive about the data above."""
    return f"```{{scaling-table}} bench/results/scaling.json\n{options}\n```"


WRONG = {
    "no-kind": (":alt: what", "the option 'kind' is missing"),
    "no-alt": (":kind: weak", "the option 'alt' is missing"),
    "two-links": (":kind: strong\n:alt: what", "two configurations have 'nodes' 1: choose with where"),
    "no-value": (":kind: strong\n:alt: what\n:where: link", "'link' is no parameter with a value"),
    "no-such": (":kind: strong\n:alt: what\n:where: link=1gbit", "no configuration has {'link': '1gbit'}"),
    "no-samples": (f"{STRONG}\n:quantity: epoch_s", "has no 'epoch_s'; it has step_s"),
}


@pytest.fixture(scope="module")
def built(shared_site):
    """Build a site once with a table, and with tables that cannot be."""
    shared_site.write("bench/results/scaling.json", json.dumps(DATA))
    wrong = {name: directive(options) for name, (options, _) in WRONG.items()}
    shared_site.pages({"table": directive(STRONG), **wrong})
    return shared_site.build()


def test_table(built):
    """A picture for each theme, then medians with base case and limits; intervals and source are one click away."""
    page = built.html("table")

    assert not built.complaints("docs/table.md")
    for text in (
        "2.5 [2.5, 2.5]",
        "1.6 [1.6, 1.6]",
        "80% [80%, 80%]",
        "Base case: 1 node, median 4 s of 10 repeats.",
        "Nothing was measured below 1 node or beyond 2",
        "With batch 64, link 300mbit.",
        "cpu quota 0.5",
    ):
        assert text in page
    shown, details = page.split("<details", 1)
    assert shown.index("<img") < shown.index("<table")
    assert "2.5" in shown
    assert "[2.5, 2.5]" not in shown
    assert "[2.5, 2.5]" in details
    assert "Base case" in shown
    assert page.count('alt="Two nodes are faster than one."') == 2
    assert len(list((built.site / "_images").glob("scaling-strong-*.svg"))) == 2


@pytest.mark.parametrize("name", WRONG)
def test_wrong_table(built, name):
    """A table whose data is not there, or is not chosen, fails the build by name."""
    assert built.returncode != 0
    assert any(f"docs/{name}.md:3" in line for line in built.complaints(WRONG[name][1]))
