"""The version has one place, `srunbook.__version__`, and the files that can't read it agree."""

from __future__ import annotations

import re
from pathlib import Path

from ruamel.yaml import YAML

from srunbook import __version__

ROOT = Path(__file__).resolve().parents[2]


def test_files_name_the_same_version():
    """CITATION.cff and the newest heading of the changelog name the version and its date."""
    citation = YAML(typ="safe").load(ROOT / "CITATION.cff")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")

    assert citation["version"] == __version__
    assert re.findall("(?m)^## (.*)$", changes)[0] == f"{__version__} ({citation['date-released']})"
