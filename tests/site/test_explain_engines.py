"""The paste box says of every log what `srunbook explain` says: same cause, consequences, lines, masks, words."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from explain_rules import rules
from failure_entries import ROOT, recordings
from javascript_patterns import PatternError, javascript
from support.drawn_logs import drawn_logs
from support.drawn_secrets import secret_lines
from support.node import call

from srunbook.explain import Redactor, Report, Scanner, diagnose, load_entries
from srunbook.explain._entries import load_ordinary
from srunbook.explain._explain import _redactor

STATIC = ROOT / "docs" / "_static"
RUNNER = ROOT / "tests" / "support" / "explain_engine.mjs"
RECORDED = [run.output for _, run in recordings(ROOT)]
BLOCK = 2**18

Logs = Sequence[tuple[str, bytes]]


def page_says(cases: Sequence[Logs], lines: list[str] = [], static: Path = STATIC) -> dict[str, Any]:  # noqa: B006
    """Return what the page's program says, of all cases in one process."""
    packed = [[{"name": name, "bytes": base64.b64encode(data).decode()} for name, data in logs] for logs in cases]
    made = rules(load_entries(), load_ordinary())
    told: dict[str, Any] = call(RUNNER, {"static": str(static), "rules": made, "cases": packed, "lines": lines})
    return told


def python_says(logs: Logs) -> dict[str, Any]:
    """Return what Python says, in the same form."""
    blocks = [(name, [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]) for name, data in logs]
    scanner = Scanner(load_entries(), load_ordinary())
    named = [(name, scanner.scan(name, pieces)) for name, pieces in blocks]
    diagnosis = diagnose([scanned for _, scanned in named], load_entries())
    read = [(name, scanned.size) for name, scanned in named if scanned.size]
    plain = Report(diagnosis, load_entries(), read)
    masked = Report(diagnosis, load_entries(), read, mask=_redactor(named, []).mask)
    return {
        "problems": [problem for _, scanned in named for problem in scanned.problems],
        "told": logs_only(plain),
        "text": plain.text(),
        "masked": masked.text(),
        "hidden": logs_only(masked),
    }


def logs_only(report: Report) -> dict[str, Any]:
    """Return what a report tells of logs; the page reads nothing else."""
    return {name: value for name, value in json.loads(report.json()).items() if name not in ("hangs", "dumps")}


@pytest.fixture(scope="module")
def few():
    """Return some cases, each with what Python says."""
    cases = [tuple(logs) for logs in drawn_logs(30, load_entries(), RECORDED)]
    cases.append((("job.log", b"srun: error: node4: task 1: Killed\n"),))
    return {logs: python_says(logs) for logs in cases}


@pytest.fixture(autouse=True)
def nobody(monkeypatch):
    """Know no user and no folder of this machine: the page knows none."""
    for name in ("USER", "LOGNAME", "SUDO_USER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir("/")


def test_engines_agree_on_all_recordings():
    """On the output of every program of the tree, both say the same."""
    cases = [[("job.log", "\n".join(output).encode())] for output in RECORDED]
    said = page_says(cases)["reports"]

    assert len(cases) > 300
    assert sum(report["told"]["status"] == "explained" for report in said) > 90
    for logs, report in zip(cases, said, strict=True):
        assert report == python_says(logs), logs


@pytest.mark.parametrize("count", [70, pytest.param(3000, marks=pytest.mark.full)])
def test_engines_agree_on_drawn_logs(count):
    """Labels, colours, bars, times, shuffled and truncated logs of several ranks, bytes that are no text: the same."""
    cases = list(drawn_logs(count, load_entries(), RECORDED))
    said = page_says(cases)["reports"]
    statuses = {report["told"]["status"] for report in said}

    assert statuses == {"explained", "unknown", "nothing_failed"}
    for logs, report in zip(cases, said, strict=True):
        assert report == python_says(logs), logs


def test_engines_agree_on_tasks_that_ended():
    """Which task ended first, alone, of several, by a signal, after its step, and in a log of nothing but trouble."""
    task = "srun: error: gpu{}: {}: {}"
    step = "slurmstepd-gpu3: error: *** STEP 50.0 ON gpu3 CANCELLED AT 2026-11-23T16:41:07 ***"
    loud = [f"error: {number:b}".translate({48: "x", 49: "y"}) for number in range(3000)]
    first = task.format(4, "task 1", "Exited with exit code 1")
    several = [task.format(4, "tasks 0,4-7", how) for how in ("Killed", "Terminated", "Exited with exit code 137")]
    logs = [[first, step], [step, first], *[[line] for line in several], [task.format(3, "task 9999999", "Killed")]]
    cases = [[("rank_3.log", "\n".join(lines).encode())] for lines in [*logs, [*loud, first], [*loud, step]]]
    cases.append([("a.log", first.encode()), ("b.log", b"0: Traceback (most recent call last):\n")])
    said = page_says(cases)["reports"]

    assert said[0]["text"].startswith("Rank 1 on gpu4 ended first, with exit code 1; nothing that it printed says why.")
    assert [report["told"]["status"] for report in said[:4]] == [
        "unknown",
        "nothing_failed",
        "unknown",
        "nothing_failed",
    ]
    for logs, report in zip(cases, said, strict=True):
        assert report == python_says(logs), logs


def test_engines_agree_on_masks():
    """Of drawn secrets in the places where logs print them, both leave the same."""
    lines = [line for seed in range(10) for _, line in secret_lines(random.Random(seed))]
    told = page_says([], lines)["masks"]

    assert len(lines) > 500
    for line, masked in zip(lines, told, strict=True):
        redactor = Redactor()
        redactor.learn(line)
        assert masked == redactor.mask(line)


@pytest.mark.parametrize("cut", [None, -2000])
def test_packed_logs(cut):
    """A packed log, also one of several parts, is read; of one that was cut off, what is there."""
    noise = random.Random(3).randbytes(20_000).hex().encode()
    message = b"step 1\nRuntimeError: Distributed package doesn't have NCCL built in\n"
    packed = gzip.compress(message) + gzip.compress(noise)
    (report,) = page_says([[("a.log.gz", packed[:cut])]])["reports"]

    assert report["told"]["cause"]["entry"] == "torch-nccl-without-gpu"
    assert report["told"]["cause"]["number"] == 2
    assert report["problems"] == (["the gzip file is cut off: only what it holds was read"] if cut else [])


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("scan", "MOST_BETWEEN && !other.slug", "MOST_BETWEEN"),
        ("lines", "if (signal === stopped)", "if (signal)"),
        ("diagnosis", "slug ? 0 : 1", "slug ? 1 : 0"),
        ("redact", ".replace(own.PATH", ".replace(own.EMAIL"),
        ("lines", "(named) rank", "(named && rank === null) rank"),
        ("reading", 'line.includes("\\r") ? line.split("\\r") : [line]', "[line]"),
    ],
)
def test_a_changed_rule_is_seen(file, before, after, few, tmp_path):
    """An engine in which one rule is another does not agree."""
    shutil.copytree(STATIC, tmp_path / "static")
    path = tmp_path / "static" / "js" / f"explain-{file}.js"
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after), encoding="utf-8")
    said = page_says([*few], static=tmp_path / "static")["reports"]

    assert said != list(few.values())


@pytest.mark.parametrize(
    "source",
    [r"(a)\1", r"(?>ab)", r"a++", r"(a|b)*", r"(?:a*)+", r"(?i:a)b", r"[\Wab]", r"(?m)^a", r"(?a)\w", r"(?L)a"],
)
def test_what_has_no_equal_fails_the_build(source):
    """An expression that would mean something else in JavaScript is refused, not translated."""
    pattern = re.compile(source.encode() if "L" in source else source)

    with pytest.raises(PatternError, match="has no equal in JavaScript"):
        javascript(pattern)


ODD = [
    "a1 ٣ é\u00a0ß_\u0085x\ufeff\u2028",
    "Foo\nBar\n",
    "\u017fK-x9",
    "a.b*c [x] {y} | $^ / \\ -",
    "\x1c\x1f \t\v",
    "x́ 👩 ² Ⅷ 五",
]


SOURCES = [
    *(r"\w+", r"\W+", r"\d+", r"\D+", r"\s+", r"\S+?", r"\b\w", r".\B.", r"^.|.$", r".\Z", r"[^\s\d]{2,3}?"),
    *(r"(?i)[k-s]+", r"(?s).+", r"(?P<x>a)|(?<!o)o(?=\n)", re.escape(ODD[3]), "(?x) a  # one\n\\ "),
]


@pytest.mark.parametrize("source", SOURCES)
def test_expressions_mean_the_same(source):
    """Kinds of characters, ends, names, case and verbose forms find the same in odd texts."""
    pattern = re.compile(source)
    (said,) = call(ROOT / "tests" / "support" / "match_patterns.mjs", {"patterns": [javascript(pattern)], "texts": ODD})

    assert said == [[found[0] for found in pattern.finditer(text)] for text in ODD]


def test_site_carries_the_rules_for_one_page(built_site):
    """The built site holds the rules as they are now; one page alone has the box, and loads them when it is used."""
    text = (built_site / "_static" / "explain-data.js").read_text(encoding="utf-8")
    made = json.loads(text.partition(" = ")[2].rstrip(";\n"))
    pages = [path for path in built_site.rglob("*.html") if "explain-" in "".join(scripts(path))]

    assert made == json.loads(json.dumps(rules(load_entries(), load_ordinary())))
    assert [path.relative_to(built_site).as_posix() for path in pages] == ["troubleshooting/index.html"]
    assert "explain-data" not in "".join(scripts(pages[0]))


def scripts(path):
    """Return the addresses of the scripts that a page loads at once."""
    return re.findall(r'<script [^>]*src="([^"]*)"', path.read_text(encoding="utf-8"))
