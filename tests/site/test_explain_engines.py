"""The paste box says of every log what `srunbook explain` says: same cause, consequences, lines, masks, words."""

from __future__ import annotations

import base64
import json
import random
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from failure_entries import ROOT, recordings
from paste_box import PatternError, javascript, rules
from support.drawn_secrets import secret_lines
from support.node import call
from support.site_search import filled

from srunbook.explain import Redactor, Report, Scanner, diagnose, load_entries, load_ordinary, redactor

STATIC = ROOT / "docs" / "_static"
RUNNER = ROOT / "tests" / "support" / "explain_engine.mjs"
RECORDED = [run.output for _, run in recordings(ROOT) if run.output]
FORMS = [form for entry in load_entries().values() for form in entry.messages]
BLOCK = 2**18
TASK = "srun: error: gpu4: task 1"
FAILED = f"{TASK}: Exited with exit code 1"
STEP = "slurmstepd-gpu3: error: *** STEP 50.0 ON gpu3 CANCELLED AT 2026-11-23T16:41:07 ***"
ENDED = [
    [FAILED, STEP],
    [STEP, FAILED],
    ["srun: error: gpu4: tasks 0,4-7: Killed"],
    [f"{TASK}: Terminated"],
]
"""Logs in which tasks ended."""

ORDINARY = [
    "step {n} loss 0.{n}",
    "rank {r}/8 start host=gpu{r} local_rank=0 device=cpu",
    "Traceback (most recent call last):",
    "OSError: [Errno 5] Input/output error: '/scratch/carol/x_{n}.bin' of user=bob at 10.0.0.{r}",
    "ValueError: Zeile {n} ungültig — 👩‍🔬",
    "During handling of the above exception, another exception occurred:",
    "srun: error: node{r}: task {r}: Exited with exit code 1",
    " {n}%|███ | {n}/100",
    "",
]
TIMES = ["2026-11-20 10:{n:02}:0{r},123 ", "[2026-11-20T10:{n:02}:0{r}.5] ", "[W1120 10:{n:02}:0{r}.25 a.cpp:7] ", ""]
LABELS = ["", "{r}: ", "[rank{r}]: ", "[{r}] ", "[default{r}]:[rank{r}]: ", "[1,{r}]<stderr>:", "[{r}] [rank9]: "]
COLOURS = ["{}", "\x1b[31m{}\x1b[0m", "\x1b]0;job\x07{}", "\x1b[2K{}\x1b[1m", "\x1b]never closed {}"]
RUBBISH = [b"\x00\x01", b"\xff\xfe", b"\xc3", b"\x85", b"\xe2\x80\xa8", b"\x1c", b"\xef\xbb\xbf", b"error: x" * 10_000]

Logs = Sequence[tuple[str, bytes]]


def drawn_log(draw: random.Random) -> bytes:
    """Draw a log: messages of entries among ordinary lines, as launchers and terminals leave them."""
    number, rank = draw.randint(1, 59), draw.randint(0, 7)
    lines = [line.format(n=number, r=rank) for line in draw.choices(ORDINARY, k=draw.randint(0, draw.choice([2, 40])))]
    for form in draw.choices(FORMS, k=draw.choice([0, 1, 1, 2, 4])):
        lines.insert(draw.randint(0, len(lines)), filled(form, str(number), "gpu17.cluster"))
    if draw.random() < 0.3:
        lines += draw.choice(RECORDED)
    if draw.random() < 0.2:
        draw.shuffle(lines)
    label, time, colour, end = map(draw.choice, (LABELS, TIMES, COLOURS, ["\n", "\r\n", "\r", "\n\n"]))
    data = b""
    for line in lines:
        before = (label + time).format(n=draw.randint(0, 59), r=draw.randint(0, 7))
        data += f"{before}{colour.replace('{}', line) if draw.random() < 0.5 else line}{end}".encode()
        data += draw.choice(RUBBISH) if draw.random() < 0.03 else b""
    return data[: draw.randint(1, len(data))] if data and draw.random() < 0.3 else data or b"\n"


def drawn_logs(count: int) -> list[Logs]:
    """Draw the logs of jobs of one or several ranks."""
    found = []
    for seed in range(count):
        draw = random.Random(seed)
        names = draw.sample(["rank_0.log", "rank_1.log", "out/slurm-17_2.out", "job.log"], draw.choice([1, 1, 2, 4]))
        found.append(tuple((name, drawn_log(draw)) for name in names))
    return found


def page_says(cases: Sequence[Logs], lines: list[str] = [], static: Path = STATIC) -> dict[str, Any]:  # noqa: B006
    """Return what the page's program says, of all cases in one process."""
    packed = [[{"name": name, "bytes": base64.b64encode(data).decode()} for name, data in logs] for logs in cases]
    made = rules(load_entries(), load_ordinary())
    told: dict[str, Any] = call(RUNNER, {"static": str(static), "rules": made, "cases": packed, "lines": lines})
    return told


def python_says(logs: Logs) -> dict[str, Any]:
    """Return what Python says, in the same form."""
    scanner = Scanner(load_entries(), load_ordinary())
    scans = {
        name: scanner.scan(name, [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]) for name, data in logs
    }
    diagnosis = diagnose(scans.values())
    read = [(name, scanned.size) for name, scanned in scans.items() if scanned.size]
    plain = Report(diagnosis, read)
    masked = Report(diagnosis, read, mask=redactor(scans).mask)
    return {
        "problems": [problem for scanned in scans.values() for problem in scanned.problems],
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
    cases = [*drawn_logs(30), (("job.log", f"{TASK}: Killed\n".encode()),)]
    return {logs: python_says(logs) for logs in cases}


@pytest.fixture(autouse=True)
def nobody(monkeypatch):
    """Know no user and no folder of this machine: the page knows none."""
    for name in ("USER", "LOGNAME", "SUDO_USER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir("/")


def test_engines_agree_on_all_recordings():
    """On the output of every program of the tree, both say the same, and of which task ended first where none does."""
    cases = [[("job.log", "\n".join(output).encode())] for output in [*RECORDED, *ENDED]]
    said = page_says(cases)["reports"]

    assert sum(report["told"]["status"] == "explained" for report in said) > 90
    assert [report["told"]["status"] == "unknown" for report in said[-4:]] == [True, False, True, False]
    for logs, report in zip(cases, said, strict=True):
        assert report == python_says(logs), logs


def test_engines_agree_on_drawn_logs():
    """Labels, colours, bars, times, shuffled and truncated logs of several ranks, bytes that are no text: the same."""
    cases = [*drawn_logs(70), (("job.log", b"step 1\n"),)]
    said = page_says(cases)["reports"]
    statuses = {report["told"]["status"] for report in said}

    assert statuses == {"explained", "unknown", "nothing_failed"}
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


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("scan", "MOST_BETWEEN && !other.slug", "MOST_BETWEEN"),
        ("diagnosis", "slug ? 0 : 1", "slug ? 1 : 0"),
        ("redact", ".replace(own.PATH", ".replace(own.EMAIL"),
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
    [r"(a)\1", r"a++", r"(a|b)*", r"(?i:a)b", r"(?m)^a"],
)
def test_what_has_no_equal_fails_the_build(source):
    """An expression that would mean something else in JavaScript is refused, not translated."""
    with pytest.raises(PatternError, match="has no equal in JavaScript"):
        javascript(re.compile(source))


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
