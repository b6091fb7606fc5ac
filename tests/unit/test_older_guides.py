"""The tables below docs/about/older-guides: what became of all that the older guides name."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "docs" / "about" / "older-guides"
NAMES = {
    guide: text.split("; ")
    for guide, text in YAML(typ="safe").load(Path(__file__).with_name("older_guides.yaml")).items()
}
PROGRAMS = {"torchrun": ["examples"], "svgd": ["examples"], "jax-multinode": ["examples", "slurm"]}
"""Folders of the files whose words may be successors as well; of the other guides only files may."""


@cache
def labels() -> set[str]:
    """Return the labels of all sections of the guides and of what comes before them, in either markup."""
    folders = (ROOT / "docs" / "guides", ROOT / "docs" / "start")
    text = "".join(path.read_text(encoding="utf-8") for folder in folders for path in folder.rglob("*.*"))
    found = re.findall(r"^(?:\((\S+)\)=|\.\. _(\S+):)$", text, re.MULTILINE)
    return {markdown or restructured for markdown, restructured in found}


@cache
def code(guide: str) -> str:
    """Return the text of all programs and job scripts whose words may be successors."""
    folders = [ROOT / name / guide.replace("-", "_") for name in PROGRAMS.get(guide, [])]
    files = [path for folder in folders for path in folder.rglob("*.*") if path.suffix != ".pyc"]
    return "".join(path.read_text(encoding="utf-8") for path in files)


def rows(guide: str) -> list[tuple[str, str]]:
    """Return the rows of a table: what the older guide has, and what replaces it here."""
    table = (TABLES / f"{guide}.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| (.+?) \| (.+?) \|.*\|$", table, re.MULTILINE)
    assert found[0] == ("There", "Here")
    return found[1:]


def missing(guide: str, here: str) -> list[str]:
    """Return the files, sections and words of a second column that do not exist, or the column if it lacks a link.

    A reader finds a word in the programs of the guide, but clicks on no path: a row with a path has a link too.
    """
    targets, words = re.findall(r"\]\(([^)]+)\)", here), re.findall(r"`([^`]+)`", here)
    paths = [word for word in words if word.startswith(("examples/", "slurm/", "scripts/"))]
    if not targets and (paths or not words) and not here.startswith("your site"):
        return [here]
    absent = [
        target
        for target in targets
        if not ((TABLES / target).is_file() if target.endswith(".md") else target in labels())
    ]
    for word in words:
        if not ((ROOT / word).is_file() if word in paths else word in code(guide)):
            absent.append(word)
    return absent


@pytest.mark.parametrize("guide", NAMES)
def test_what_the_older_guide_names_has_a_successor(guide: str) -> None:
    """Everything that the older guide names stands in the first column of the table."""
    column = "\n".join(there.replace("`", "") for there, _ in rows(guide))

    assert len(NAMES[guide]) > 40
    assert [name for name in NAMES[guide] if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", column)] == []


@pytest.mark.parametrize("guide", NAMES)
def test_successors_exist(guide: str) -> None:
    """What the table points at exists: a file, a page, a section of the guide, a word of its programs."""
    assert {there: absent for there, here in rows(guide) if (absent := missing(guide, here))} == {}


@pytest.mark.parametrize("guide", NAMES)
def test_the_first_page_of_a_guide_leads_to_its_table(guide: str) -> None:
    """A reader of the older guide finds its table from the first page of the new one."""
    (page,) = (ROOT / "docs" / "guides" / guide).glob("index.*")
    label = re.findall(r"^\((\S+)\)=$", (TABLES / f"{guide}.md").read_text(encoding="utf-8"), re.MULTILINE)[0]

    assert re.search(rf"[(<]{label}[)>]", page.read_text(encoding="utf-8"))


def test_missing_successor_is_seen() -> None:
    """A row that points at nothing is a failure."""
    rows = [
        "[](nowhere)",
        "[](torchrun), `slurm/torchrun/gone.py`",
        "`examples/torchrun/ddp.py`",
        "`no such word`",
        "x",
    ]

    assert [here for here in rows if not missing("torchrun", here)] == []


def test_a_suspected_firewall_can_be_tested() -> None:
    """An entry that names a firewall as a cause links to the test of one."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs/troubleshooting").glob("*.md")}
    bodies = {name: text.partition("\n---\n")[2] for name, text in texts.items() if name != "index"}
    named = {name: body for name, body in bodies.items() if re.search("firewall|network between the nodes", body)}

    assert len(named) > 3
    assert [name for name, body in named.items() if not re.search(r"\(\w+(-ddp)?-firewall\)", body)] == []


def test_columns_of_metrics_are_explained() -> None:
    """Each column of the gloo guide's metrics.csv has its row on the page."""
    program = (ROOT / "examples" / "gloo_ddp" / "full" / "train_traffic.py").read_text(encoding="utf-8")
    columns = "".join(re.findall(r'^METRICS \+?= "(.*)"$', program, re.MULTILINE)).split(",")
    page = (ROOT / "docs" / "guides" / "gloo-ddp" / "full.md").read_text(encoding="utf-8")
    section = page.split("(gloo-ddp-metrics)=")[1].split("(gloo-ddp-verify)=")[0]

    assert len(columns) == 11
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == columns
