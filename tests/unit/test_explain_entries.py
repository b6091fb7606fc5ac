"""Entries about failures: the file that the wheel carries, and what their recordings match."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from failure_entries import (
    FOLDER,
    ROOT,
    SHIPPED,
    EntryError,
    read_entries,
    recordings,
    shipped_text,
    shows_failure,
)

from srunbook.explain import Scanner, diagnose, expression, load_entries
from srunbook.explain._entries import load_ordinary

ENTRY = """\
---
messages: ["a # of great *"]
stage: meet
symptom: hangs
frameworks: [Slurm]
fix: Wait.
explains: [two]
---
"""


def test_shipped_file_is_that_of_the_pages():
    """The wheel carries the entries as the pages say them: `python docs/_ext/failure_entries.py` writes the file."""
    assert SHIPPED.read_text(encoding="utf-8") == shipped_text(ROOT)
    assert load_entries() == read_entries(ROOT / FOLDER)


def test_shipped_file_follows_a_page(tmp_path):
    """Another message in a page is another file."""
    page = tmp_path / FOLDER / "one.md"
    page.parent.mkdir(parents=True)
    page.write_text(ENTRY.replace("explains: [two]\n", ""))
    before = shipped_text(tmp_path)
    page.write_text(page.read_text().replace("great", "small"))

    assert json.loads(before)["entries"]["one"]["messages"] == ["a # of great *"]
    assert shipped_text(tmp_path) != before


def test_entry_that_explains_nothing(tmp_path):
    """An entry that explains one that does not exist is refused."""
    (tmp_path / "one.md").write_text(ENTRY)

    with pytest.raises(EntryError, match=r"one\.md: explains 'two', which is no entry"):
        read_entries(tmp_path)


@pytest.mark.parametrize(
    ("form", "line", "found"),
    [
        ("Timed out waiting #ms for recv", "x Timed out waiting 6000ms for recv y", True),
        ("Timed out waiting #ms for recv", "Timed out waiting ms for recv", False),
        (r"\# of tasks: #/#.", "# of tasks: 1/2.", True),
        ("connect to (*, #)", "connect to (node1, 29500)", True),
        ("connect to (*, #)", "connect to (node 1, 29500)", False),
        ("devices (all)", "devices [all]", False),
    ],
)
def test_form_of_a_message(form, line, found):
    """`#` stands for a number, `*` for a name without spaces, everything else for itself."""
    assert bool(re.search(expression(form), line)) == found


def test_title_ends_where_the_message_varies():
    """The title is the message without what differs from run to run at its end."""
    entries = load_entries()

    assert entries["torch-peer-died"].title == "Connection closed by peer"
    assert entries["torch-port-in-use"].title == "name: EADDRINUSE, message: address already in use"
    assert entries["jax-world-of-one"].title == "Every process is process 0 of 1"


def test_no_message_is_that_of_another_entry():
    """No form of an entry matches a form of another one, with 7 for each number and x for each name."""
    entries = load_entries()
    told = {
        (slug, form): re.sub(r"(?<!\\)#", "7", re.sub(r"(?<!\\)\*", "x", form)).replace("\\", "")
        for slug, entry in entries.items()
        for form in entry.messages
    }
    for (slug, form), text in told.items():
        others = [other for (other, own) in told if other != slug and re.search(expression(own), text)]
        assert others == [], form


PEER_DIED = {"ddp-monitored-barrier", "ddp-parameter-shapes", "parallel-microbatches", "parallel-stage-shapes"}
"""Entries in whose recorded runs one rank fails with their message, and another one says that it has lost that rank."""

RUNS = {path.relative_to(ROOT).as_posix(): run for path, run in recordings(ROOT)}


@pytest.mark.parametrize("name", [name for name in RUNS if shows_failure(Path(name))])
def test_a_recorded_failure_is_its_own_entry_and_no_other(name):
    """A failure whose entry has a message is explained by that entry alone, and a silent one by none."""
    slug = Path(name).parent.name
    entry = load_entries()[slug]
    found = diagnosed(RUNS[name])
    lost = {"torch-peer-died"} if slug in PEER_DIED else set()
    warned = {finding.slug for finding in found.warnings}

    assert found.slugs - lost == ({slug} if entry.messages and entry.role != "warning" else set())
    assert not lost or found.cause.slug == slug
    assert (slug in warned) == (entry.role == "warning")


def diagnosed(run):
    scanned = Scanner(load_entries(), load_ordinary()).scan("log", ["\n".join(run.output).encode()])
    return diagnose([scanned], load_entries(), completed=not run.exit_code)


def test_good_runs_match_nothing():
    """No recording of a good run has a cause, and none is of an entry but those of warnings."""
    fine = [name for name, run in RUNS.items() if not run.exit_code or "failures" in Path(name).parts]
    mended = {name: diagnosed(RUNS[name]) for name in fine if not shows_failure(Path(name))}
    good = {name: found for name, found in mended.items() if not RUNS[name].exit_code}

    assert len(good) > 100
    assert {name: found for name, found in mended.items() if found.slugs} == {}
    assert {name: found for name, found in good.items() if found.cause or found.to_search} == {}


def test_a_good_run_with_a_message_in_it_is_seen():
    """The check of good runs is not blind: with a message of an entry in it, the recording of one matches."""
    run = next(run for name, run in RUNS.items() if name.startswith("slurm/") and not run.exit_code)
    spoilt = replace(run, output=(*run.output, "0: RuntimeError: Distributed package doesn't have NCCL built in"))

    assert diagnosed(spoilt).slugs == {"torch-nccl-without-gpu"}


def test_every_page_lies_in_the_package():
    """There is one entry for each page, and it has the page's name."""
    assert sorted(load_entries()) == sorted(path.stem for path in (ROOT / FOLDER).glob("*.md") if path.stem != "index")
