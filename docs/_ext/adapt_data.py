"""Writes what the page's program needs to adapt job scripts: `_static/adapt/rules.json`, and a file for each script.

A page fetches them only for a reader who has said what the cluster is like. `_static/adapt/PATH.json` is about the
script PATH of the repository: all in `slurm/`, and those that pages show.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import script_facts
from code_file import INCLUDED
from repository import root

from srunbook._files import write_whole

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def write_data(app: Sphinx, exception: Exception | None) -> None:
    """Write the files of a site that was built."""
    if exception or app.builder.format != "html":
        return
    repository = root(app.env)
    shown = {name for names in INCLUDED.of(app.env).values() for name in names}
    shown |= {path.relative_to(repository).as_posix() for path in (repository / "slurm").rglob("*.sbatch")}
    folder = Path(app.outdir) / "_static" / "adapt"
    write_json(folder / "rules.json", script_facts.known())
    for name in sorted(shown):
        if name.endswith(".sbatch"):
            write_json(folder / f"{name}.json", script_facts.facts((repository / name).read_bytes()))


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a file of JSON, and only when it differs."""
    write_whole(path, json.dumps(content, ensure_ascii=False, separators=(",", ":")))


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the writing."""
    app.setup_extension("code_file")
    app.connect("build-finished", write_data)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
