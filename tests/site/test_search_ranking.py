"""How the site's search ranks the sections of a small index, and how the build makes an index."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.site_search import ROOT, ask

STATIC = ROOT / "docs" / "_static"
SECTIONS = {
    "tpu": ("Other devices", "A TPU has its own chip."),
    "output": ("What it prints", "The output of a run, and the input."),
    "meet": ("RendezvousTimeoutError", "The processes did not meet."),
    "hang": ("It hangs", "A job that is hanging waits for a rank."),
    "start": ("The start", "Each job starts with srun."),
    "warned": ("A message of …", "Warned about the network of node1."),
    "caused": ("Another message", "Nothing else."),
    "limit": ("Survive the time limit", "The job ends after some hours; resume it."),
    "saved": ("Keep the work", "Each checkpoint is whole, on multi-GPU machines as on others."),
    "proof": ("After the end", "What accounting tells."),
}
KEYWORDS = {"proof": ["did my run succeed", "sanity check"]}
MESSAGES = [(r"cannot\ reach\ \S+?\ after\ -?\d[\d.,]*\ s", "caused"), (r"cannot\ reach", "warned")]
QUERIES = {
    "TPU": ["tpu"],
    "put": [],
    "rendezvous timeout": ["meet"],
    "rendezvuos": ["meet"],
    "job hang": ["hang", "start", "limit"],
    "24h": ["limit"],
    "checkpointing": ["saved"],
    "multi gpu": ["saved"],
    "did the run succeed?": ["proof", "output"],
    "E1120 10:00:01 a.cc:144] cannot reach gpu7.net:29500 after 1,800.5 s; resume": [
        "caused",
        "warned",
        "limit",
    ],
    "cannot reach": ["warned"],
    "": [],
    "#*([\\ 4711 0x7f3a 10.0.0.1": [],
}
"""What is asked, and the first sections that it leads to."""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Return the answer to each query; one process gives them."""
    names = list(SECTIONS)
    index = {
        "pages": [
            {
                "address": f"{name}.html",
                "title": SECTIONS[name][0],
                "trail": [],
                "weight": 1,
                "about": "",
                "keywords": KEYWORDS.get(name, []),
            }
            for name in names
        ],
        "sections": [[place, "", *SECTIONS[name], ""] for place, name in enumerate(names)],
        "messages": [[expression, names.index(name)] for expression, name in MESSAGES],
        "suggestions": [0, 1, 2],
    }
    path = tmp_path_factory.mktemp("index") / "index.js"
    path.write_text(f"globalThis.searchIndex = {json.dumps(index)};")
    return dict(zip(QUERIES, ask(STATIC, path, list(QUERIES)), strict=True))


@pytest.mark.parametrize("query", QUERIES)
def test_ranking(answers, query):
    """Whole words, other forms, parts of names, typos, one word or two, what readers ask; messages come first."""
    found = [result["page"].removesuffix(".html") for result in answers[query]["results"]]

    assert found[: len(QUERIES[query])] == QUERIES[query]
    if not QUERIES[query]:
        assert found == []


def test_matched_entries_are_marked(answers):
    """The entries whose message a line has are marked, and no other result is."""
    line = next(query for query in QUERIES if query.startswith("E1120"))
    matched = [result["page"] for result in answers[line]["results"] if result["matched"]]

    assert matched == ["caused.html", "warned.html"]


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


def index_of(site: Path) -> dict:
    """Read the index of a built site."""
    return json.loads(
        (site / "_static" / "search-index.js").read_text(encoding="utf-8").partition(" = ")[2].rstrip(";\n")
    )


def test_index_of_a_build(tiny_site):
    """The index has each section with its text, terms, words of code and messages, and follows what changes."""
    tiny_site.write("examples/guide/a.py", "flavour = flavour = 1\n")
    tiny_site.write("docs/troubleshooting/unreachable.md", ENTRY)
    tiny_site.pages(PAGES, also=["troubleshooting/unreachable"])
    build = tiny_site.build()
    assert build.returncode == 0, build.output
    first = index_of(build.site)
    tiny_site.pages({**PAGES, "one": "Quite different."}, also=["troubleshooting/unreachable"])
    second = index_of(tiny_site.build().site)

    pages = [page["address"] for page in first["pages"]]
    told = {(pages[page], anchor): (title, text, code.split()) for page, anchor, title, text, code in first["sections"]}
    assert told["one.html", ""] == ("one", "Above.", [])
    assert told["one.html", "below"][:2] == ("Below", "Second text.")
    assert told["one.html", "below"][2].count("flavour") == 1
    assert told["words.html", "term-rank"] == ("rank", "A process.", [])
    title, text, _ = told["troubleshooting/unreachable.html", ""]
    assert title == "cannot reach … at"
    assert all(part in text for part in ("is not reachable", "Wait a little.", "Nobody knows."))
    assert first["messages"][0] == [
        r"cannot\ reach\ [^ \t\n]+?\ at\ -?\d[\d.,]*",
        pages.index("troubleshooting/unreachable.html"),
    ]
    entry = first["pages"][pages.index("troubleshooting/unreachable.html")]
    assert entry["fix"] == "Wait."
    assert entry["keywords"] == ["is it down", "ping fails"]
    assert entry["about"].endswith("Wait.")
    assert [text for _, _, title, text, _ in second["sections"] if title in ("one", "Below")] == ["Quite different."]
