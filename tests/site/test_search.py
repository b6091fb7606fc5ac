"""The site's search, asked what readers ask and paste."""

from __future__ import annotations

import gzip
import json
import re

import pytest
from failure_entries import FOLDER, ROOT, read_entries
from support.site_search import ask, message_lines, missed, pasted_lines, questions

from srunbook.explain import expression, plain
from srunbook.explain.entries import anchor, most_specific_first

MOST_BYTES = 260_000
NOTHING = "xyzzyq plughonk"

ENTRIES = read_entries(ROOT / FOLDER)
SETS = {
    "messages": message_lines(ENTRIES),
    "pasted": pasted_lines(),
    "questions": questions("search_questions.yaml"),
}


@pytest.fixture(scope="module")
def answers(built_site):
    """Return the answers to all queries, by set; one process gives them."""
    texts = [query.text for queries in SETS.values() for query in queries]
    given = iter(ask(built_site / "_static", built_site / "_static" / "search-index.js", [*texts, NOTHING]))
    return {**{name: [next(given) for _ in queries] for name, queries in SETS.items()}, "nothing": next(given)}


def index_of(site):
    """Read the index of a built site."""
    text = (site / "_static" / "search-index.js").read_text(encoding="utf-8")
    return json.loads(text.partition(" = ")[2].rstrip(";\n"))


@pytest.mark.parametrize(("name", "among"), [("messages", 1), ("pasted", 1), ("questions", 3)])
def test_right_page_is_found(answers, name, among):
    """A pasted message leads to its entry first, a question to its page among the first three: 95 of 100."""
    wrong = missed(SETS[name], answers[name], among)

    assert len(SETS[name]) >= 15
    assert len(wrong) <= 0.05 * len(SETS[name]), "\n".join(wrong)


def test_answers_exist(built_site):
    """Each page that a query should lead to is a page of the site."""
    absent = {
        answer
        for queries in (*SETS.values(), questions("search_questions_held_out.yaml"))
        for query in queries
        for answer in query.answers
        if not (built_site / f"{answer}.html").is_file()
    }

    assert not absent


def test_messages_match_as_in_explain(answers):
    """The page and `srunbook explain` find the messages of the same entries in a line."""
    forms = [(slug, anchor(form), re.compile(expression(form))) for slug, form in most_specific_first(ENTRIES)]
    for query, answer in zip(SETS["messages"], answers["messages"], strict=True):
        text = plain(query.text)
        slugs = {slug for slug, needed, form in forms if needed in text and form.search(text)}
        matched = {result["page"] for result in answer["results"] if result["matched"]}
        assert matched == {f"troubleshooting/{slug}.html" for slug in slugs}, query.text
        assert slugs & {answer.rpartition("/")[2] for answer in query.answers}


def test_query_without_results(answers, built_site):
    """A query that nothing answers gets at least three suggestions, which exist."""
    suggestions = answers["nothing"]["suggestions"]

    assert answers["nothing"]["results"] == []
    assert len(suggestions) >= 3
    assert all((built_site / page["address"]).is_file() and page["title"] for page in suggestions)


def test_each_page_has_keywords(built_site):
    """Each page that somebody wrote says what readers type who look for it."""
    written = [page for page in index_of(built_site)["pages"] if not page["address"].startswith("gallery/")]

    assert len(written) > 200
    assert [page["address"] for page in written if len(page["keywords"]) < 3] == []


def test_index_is_small_and_waits(built_site):
    """The index has at most 260 kB when compressed, and no page names it: the search box loads it."""
    index = built_site / "_static" / "search-index.js"
    pages = [path for path in built_site.rglob("*.html") if "search-index" in path.read_text(encoding="utf-8")]

    assert len(gzip.compress(index.read_bytes())) <= MOST_BYTES
    assert pages == []
    assert "searchindex.js" not in (built_site / "search.html").read_text(encoding="utf-8")  # Sphinx's own


ENTRY = """\
---
messages: ["cannot reach * at #", "is not reachable"]
stage: meet
symptom: hangs
frameworks: [Slurm]
fix: Wait.
source: somewhere
keywords: is it down, ping fails
---

Text.

## The fix

Wait a little.

## The cause

Nobody knows.
"""
PAGES = {
    "one": "Above.\n\n## Below\n\nSecond text.\n\n```{code-file} examples/guide/a.py\n```",
    "words": "{.glossary}\nrank\n: A process.\n\ncore\n: Of a CPU.",
}


def test_index_of_a_build(tiny_site):
    """The index has each section with its text, terms, words of code and messages, and follows what changes."""
    tiny_site.write("examples/guide/a.py", "flavour_of = flavour_of = 1\n")
    tiny_site.write("docs/troubleshooting/unreachable.md", ENTRY)
    tiny_site.pages(PAGES, also=["troubleshooting/unreachable"])
    build = tiny_site.build()
    assert build.returncode == 0, build.output
    first = index_of(build.site)
    tiny_site.pages({**PAGES, "one": "Quite different."}, also=["troubleshooting/unreachable"])
    second = index_of(tiny_site.build().site)

    pages = [page["address"] for page in first["pages"]]
    sections = [(pages[page], anchor) for page, anchor, _, _ in first["sections"]]
    told = {(pages[page], anchor): (title, lead) for page, anchor, title, lead in first["sections"]}
    words = {name: [line.split() for line in first[name]] for name in ("text", "code")}
    assert told["one.html", ""] == ("one", "")
    assert told["one.html", "below"] == ("Below", "Second text.")
    assert told["words.html", "term-rank"] == ("rank", "A process.")
    assert told["troubleshooting/unreachable.html", ""] == ("cannot reach … at", "")
    for name, word, place in [
        ("code", "flavour_of", ("one.html", "below")),
        ("text", "reachable", ("troubleshooting/unreachable.html", "")),
        ("text", "nobody", ("troubleshooting/unreachable.html", "")),
    ]:
        assert [word, str(sections.index(place) + 1)] in words[name]
    assert first["messages"][0] == [
        r"cannot reach [^ \t\n]+? at -?\d[\d.,]*",
        pages.index("troubleshooting/unreachable.html"),
    ]
    entry = first["pages"][pages.index("troubleshooting/unreachable.html")]
    assert entry["fix"] == "Wait."
    assert entry["keywords"] == ["is it down", "ping fails"]
    assert [page["about"] for page in second["pages"] if page["title"] == "one"] == ["Quite different."]
