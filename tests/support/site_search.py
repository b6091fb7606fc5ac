"""Ask the search of a site what a page of it would answer, and count how often the right page comes first."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from ruamel.yaml import YAML
from support.node import call

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "site"
LABEL = "2026-11-20 10:00:00,123 3: [rank5]: "


class Query(NamedTuple):
    """What somebody asks, and the pages that answer it, as paths below docs/ without a suffix."""

    text: str
    answers: list[str]


def ask(static: Path, index: Path, texts: list[str]) -> list[dict]:
    """Let one process answer all queries.

    Args:
        static: The folder with the site's scripts.
        index: The index.
        texts: The queries.
    """
    return call(HERE / "search.mjs", {"static": str(static), "index": str(index), "queries": texts})


def questions(name: str) -> list[Query]:
    """Read the questions of a file beside the tests of the site."""
    told = YAML(typ="safe").load((HERE / name).read_text(encoding="utf-8"))
    return [Query(one["question"], [answer.removesuffix(".html") for answer in one["answers"]]) for one in told]


class Pasted(NamedTuple):
    """A line that somebody pasted into a public issue, and the entry that explains it, or None."""

    line: str
    entry: str | None


def public_messages() -> list[Pasted]:
    """Read the lines that people pasted into issues."""
    told = YAML(typ="safe").load((HERE / "search_messages.yaml").read_text(encoding="utf-8"))
    return [Pasted(one["line"], one["entry"]) for one in told]


def pasted_lines() -> list[Query]:
    """Return the lines from issues that an entry explains."""
    return [Query(line, [f"troubleshooting/{entry}"]) for line, entry in public_messages() if entry]


def filled(form: str, number: str, name: str) -> str:
    r"""Return a line that has the form of a message.

    >>> filled(r"\# of tasks on *: #\r", "4711", "gpu17")
    '# of tasks on gpu17: 4711\\r'
    """
    return re.sub(r"\\([#*\\])|[#*]", lambda found: found[1] or {"#": number, "*": name}[found[0]], form)


def message_lines(entries: dict) -> list[Query]:
    """Return a line for each form of each entry's message, with other numbers and names, below launchers' labels."""
    return [
        Query(LABEL + filled(form, "4711", "gpu17.cluster"), [f"troubleshooting/{slug}"])
        for slug, entry in entries.items()
        for form in entry.messages
    ]


def place(query: Query, answer: dict) -> int | None:
    """Return the place of the first right page among the results, from 0, or None."""
    pages = [result["page"].removesuffix(".html") for result in answer["results"]]
    return next((place for place, page in enumerate(pages) if page in query.answers), None)


def missed(queries: list[Query], answers: list[dict], among: int) -> list[str]:
    """Return the queries whose right page is not among the first results, each with what came instead."""
    found = []
    for query, answer in zip(queries, answers, strict=True):
        where = place(query, answer)
        if where is None or where >= among:
            instead = [result["page"] for result in answer["results"][:among]]
            found.append(f"{query.text!r}: {', '.join(instead) or 'nothing'} (right: {', '.join(query.answers)})")
    return found
