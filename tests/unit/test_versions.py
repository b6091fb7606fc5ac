"""What pages say of versions rests on recordings/versions.json."""

from __future__ import annotations

import json
import re
from pathlib import Path

import versions

ROOT = Path(__file__).resolve().parents[2]
ROWS = json.loads((ROOT / "recordings" / "versions.json").read_text(encoding="utf-8"))


def test_file_has_the_rows():
    """The file has the rows that `nox -s versions` runs, and no others."""
    assert [*ROWS] == [row.name for row in versions.ROWS]


def test_programs_say_what_they_need():
    """A program that a version does not run names in one line the version that it needs."""
    wrong = [(name, *program) for name, row in ROWS.items() for program in row["programs"].items() if program[1]]

    assert wrong
    assert [case for case in wrong if not re.search(r"Error: needs \w+ [\d.]+ or newer, found [\d.]+", case[2])] == []
