"""The directive `code-diff`: what it marks, what it hides, and what the copy button would take."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest

BEFORE = "".join(f"line_{number} = {number}\n" for number in range(20)) + '"""of two\nlines"""\n'
AFTER = "import os\n\n" + BEFORE.replace("line_15 = 15\n", 'line_15 = "<&>"\n').replace("lines", "LINES")


PAIR = "examples/guide/two.py\n:from: examples/guide/one.py"
PARTS = ("import os\n\nLINES", "line_15")


@pytest.fixture(scope="module")
def page(shared_site):
    """Build a page that shows one difference, and one that shows it in two parts."""
    shared_site.write("examples/guide/one.py", BEFORE)
    shared_site.write("examples/guide/two.py", AFTER)
    parts = "\n\n".join(f"```{{code-diff}} {PAIR}\n\n{part}\n```" for part in PARTS)
    shared_site.write("docs/parts.md", f"# Parts\n\n{parts}\n")
    shared_site.page(f"```{{code-diff}} {PAIR}\n```\n\n```{{toctree}}\nparts\n```")
    build = shared_site.build()
    assert build.returncode == 0, build.output
    return build


def text_of(markup: str) -> str:
    """Return the text of some HTML."""
    return unescape(re.sub("<[^>]*>", "", markup))


def block(page) -> str:
    """Return the HTML of the difference."""
    return page.html().split("code-diff", 1)[1].split("<pre>", 1)[1].split("</pre>", 1)[0]


def test_added_and_removed_lines(page):
    """Added and removed lines are marked, also inside a string of several lines, and blank lines do not count."""
    added = [text_of(line) for line in re.findall("<ins>(.*?)</ins>", block(page), re.S)]
    removed = [text_of(line) for line in re.findall("<del>(.*?)</del>", block(page), re.S)]

    assert added == ["import os\n", "\n", 'line_15 = "<&>"\n', 'LINES"""\n']
    assert removed == ["line_15 = 15\n", 'lines"""\n']
    assert ", from one.py: +3 \N{MINUS SIGN}2 lines" in text_of(page.html())


def test_unchanged_lines(page):
    """A long run of unchanged lines is hidden but for three on each side of a change."""
    pattern = r'<span class="diff-gap">(\d+) lines as before\n</span><span hidden>(.*?)(?=<del>)'
    ((count, rest),) = re.findall(pattern, block(page), re.S)
    lines = text_of(rest).splitlines()

    assert count == "9"
    assert lines[0] == "line_3 = 3"
    assert lines[-4:] == ["line_11 = 11", "line_12 = 12", "line_13 = 13", "line_14 = 14"]


def test_copy_takes_the_new_file(page):
    """Without what the copy button excludes, the text is the new file, byte for byte."""
    kept = re.sub(r'<del>.*?</del>|<span class="diff-gap">.*?</span>', "", block(page), flags=re.S)

    assert text_of(kept) == AFTER


def test_both_files_count_as_shown(page):
    """The report of the build names both files."""
    included = json.loads(page.site.with_name("site-included.json").read_text(encoding="utf-8"))

    assert {"examples/guide/one.py", "examples/guide/two.py"} <= set(included)


def test_parts(page):
    """Each part shows its changed lines with one unchanged line around, and what is copied is what it shows."""
    first, second = re.findall(r"code-diff docutils.*?<pre>(.*?)</pre>", page.html("parts"), re.S)
    copied = re.sub(r'<del>.*?</del>|<span class="diff-gap">.*?</span>', "", first, flags=re.S)

    assert text_of(copied) == 'import os\n\nline_0 = 0\n"""of two\nLINES"""\n'
    assert text_of(re.sub("</?(ins|del)>", "|", second)) == (
        'line_14 = 14\n|line_15 = 15\n||line_15 = "<&>"\n|line_16 = 16\n'
    )
