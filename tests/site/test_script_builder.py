"""The directive `script-builder`: what it leaves on the page, and the commands that it refuses."""

from __future__ import annotations

import json
import re

import pytest

from srunbook import generate

GOOD = (
    "srunbook generate --profile small --script a.py --set nodes=3 --set env_vars.A=1 --set env_vars.B=2 -- --epochs 3"
)
WRONG = {
    "another-command": ("srunbook lint a.py", "is not a command srunbook generate"),
    "unknown-option": ("srunbook generate --nodes 3", "No such option"),
    "unknown-field": ("srunbook generate --set node=3", "did you mean nodes?"),
    "no-script": ("srunbook generate --profile small", "no program is named"),
    "open-quote": ("srunbook generate 'a", "No closing quotation"),
}


@pytest.fixture(scope="module")
def built(shared_site):
    """Build a site with a form, a page without one, and a page for each wrong command."""
    bodies = {"good": GOOD, **{name: line for name, (line, _) in WRONG.items()}}
    shared_site.pages({name: f"```{{script-builder}}\n{line}\n```" for name, line in bodies.items()})
    return shared_site.build()


def test_page_has_the_script_and_what_the_form_needs(built):
    """The page holds the command, its script, its values and the rules; it alone loads the form's program and style."""
    page = built.html("good")
    values, rules = (
        json.loads(re.search(rf'<script type="application/json" class="script-builder-{name}">(.*?)</script>', page)[1])
        for name in ("start", "rules")
    )

    size = {"profile": "small", "script": "a.py", "nodes": 3}
    assert values == {**size, "env_vars": {"A": "1", "B": "2"}, "arguments": ["--epochs", "3"]}
    assert rules == json.loads(json.dumps(generate.rules()))
    assert f"# Made by: {GOOD}" in re.sub(r"<[^>]*>", "", page)
    assert [("builder.css" in html, "js/builder.js" in html) for html in (page, built.html())] == [
        (True, True),
        (False, False),
    ]


@pytest.mark.parametrize("name", WRONG)
def test_wrong_command(built, name):
    """A command that prints no script fails the build, and the complaint says why."""
    assert [line for line in built.complaints(WRONG[name][1]) if f"{name}.md" in line]
