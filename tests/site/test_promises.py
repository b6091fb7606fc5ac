"""What docs/about/promises.md promises is still there: promised.txt lists it. Redirects lead to pages."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from sphinx.util.inventory import InventoryFile

from srunbook._files import write_whole

ROOT = Path(__file__).resolve().parents[2]
PROMISED = Path(__file__).with_name("promised.txt")
REDIRECTS = {
    page: os.path.normpath(f"{page}/../{target.partition('#')[0]}").removesuffix(".html")
    for page, target in json.loads((ROOT / "docs" / "redirects.json").read_text(encoding="utf-8")).items()
}
"""Where each page that has moved leads."""

NOT_PROMISED = re.compile(r"404|sphx_.*|(gen|mod|py-mod)index|search|recordings\..*|.*\._.*")
FIELDS = {"job": "job-schema.csv", "cluster": "cluster-schema.csv"}
"""The fields of files: tests of their own compare these tables with the models."""


def promises(site: Path) -> set[str]:
    """Return what the site's inventory lists, and the files beside it."""
    found = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data
    ours = {kind: {name for name in names if not NOT_PROMISED.fullmatch(name)} for kind, names in found.items()}
    scripts = [*ROOT.glob("slurm/*/*.s[bc]*"), *ROOT.glob("scripts/*.sh")]
    tables = {kind: (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8") for kind, name in FIELDS.items()}
    return {
        *(f"page {name}" for name in ours["std:doc"]),
        *(f"anchor {found['std:label'][name].uri.replace('.html#', '#')}" for name in ours["std:label"]),
        *(f"option {name}" for name in ours["std:cmdoption"]),
        *(f"name {name}" for kind in ours if kind[:3] == "py:" for name in ours[kind]),
        *(f"script {path.relative_to(ROOT)}" for path in scripts),
        *(f"zip {path.name}" for path in site.glob("zips/*.zip")),
        *(f"field {kind} {name}" for kind, table in tables.items() for name in re.findall("(?m)^`(.+?)`,", table)),
    }


def kept(line: str, now: set[str], site: Path) -> bool:
    """Return whether a promise is kept: by itself or, for a page and its sections, where the page has moved to."""
    kind, name, anchor = re.fullmatch("([a-z]+) ([^#]+)#?(.*)", line).groups()
    moved = REDIRECTS.get(name)
    if kind not in ("page", "anchor") or f"page {moved}" not in now:
        return line in now
    return not anchor or f'id="{anchor}"' in (site / f"{moved}.html").read_text(encoding="utf-8")


def test_promises_are_kept(built_site, pytestconfig):
    """What an earlier version promised is there; `--record` adds what this version has."""
    now = promises(built_site)
    if pytestconfig.getoption("--record"):
        before = PROMISED.read_text(encoding="utf-8").splitlines() if PROMISED.exists() else []
        write_whole(PROMISED, "".join(f"{line}\n" for line in sorted({*before, *now})))
    promised = PROMISED.read_text(encoding="utf-8").splitlines()

    assert len(promised) > 1000
    assert [line for line in promised if not kept(line, now, built_site)] == []


def test_redirects_lead_to_pages(built_site):
    """What has moved is no longer a page, and leads to one at once; test_site.py checks the anchor."""
    now = promises(built_site)

    assert [page for page, target in REDIRECTS.items() if f"page {page}" in now or f"page {target}" not in now] == []
