"""Three sets are equal: the files that exist, those that pages show, and those that run."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import gallery_guard

ROOT = Path(__file__).resolve().parents[2]

FOLDERS = ("examples", "slurm", "scripts")
EXECUTING = ("tests/simulation", "tests/slurm", "tests/faults", "tests/gpu")
"""Folders whose tests execute files."""


def existing(root: Path) -> set[str]:
    """Files that somebody wrote to be shown."""
    found = set()
    for folder in FOLDERS:
        for path in (root / folder).rglob("*"):
            name = path.relative_to(root).as_posix()
            if path.is_file() and "__pycache__" not in name and not path.name.endswith(".recording.json"):
                found.add(name)
    return {name for name in found if not Path(name).name.startswith("GALLERY_HEADER")}


def strings(path: Path) -> Iterator[str]:
    """The string constants of a Python file, without its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def executed(root: Path, names: set[str]) -> set[str]:
    """Files that a driver runs, or that an executing test names, by path or by a pattern such as slurm/*/*.sbatch."""
    found = set()
    for driver in gallery_guard.drivers(root):
        found |= {path.relative_to(root).as_posix() for path in [driver, *gallery_guard.uses(driver)]}
    patterns = set()
    for folder in EXECUTING:
        for path in (root / folder).rglob("*.py"):
            patterns.update(text for text in strings(path) if "/" in text or text.endswith((".py", ".sbatch", ".sh")))
    for name in names:
        short = name.split("/", 1)[1]
        if any(fnmatchcase(name, text) or fnmatchcase(short, text) for text in patterns if text.strip("*/")):
            found.add(name)
    return found & names


def unshown(names: set[str], included: dict[str, list[str]]) -> set[str]:
    """Files that no page shows."""
    return names - set(included)


def test_every_file_is_shown(included):
    """Every file in examples/, slurm/ and scripts/ stands on a page."""
    names = existing(ROOT)

    assert len(names) > 10
    assert not unshown(names, included)


def test_every_file_is_executed():
    """Every file in examples/, slurm/ and scripts/ is run by a driver or by a test."""
    names = existing(ROOT)
    if not list((ROOT / "tests" / "slurm").glob("test_*.py")):  # job scripts wait for a real Slurm, and say so
        names = {name for name in names if not name.startswith("slurm/")}

    assert not names - executed(ROOT, names)


def test_every_shown_file_exists(included):
    """The report of the build names no file that is gone."""
    assert not {name for name in included if not (ROOT / name).is_file()}


def test_file_that_no_page_shows(tiny_site):
    """A script and a program that no page shows are found, and those that one shows are not."""
    for name in ("examples/guide/shown.py", "examples/guide/hidden.py", "slurm/shown.sbatch", "slurm/hidden.sbatch"):
        tiny_site.write(name, "true\n")
    tiny_site.page("```{code-file} examples/guide/shown.py\n```\n\n```{code-file} slurm/shown.sbatch\n```")
    build = tiny_site.build()

    included = json.loads(build.site.with_name("site-included.json").read_text())

    assert build.returncode == 0, build.output
    assert unshown(existing(tiny_site.root), included) == {"examples/guide/hidden.py", "slurm/hidden.sbatch"}


def test_file_that_nothing_runs(tiny_site):
    """A file counts as run where a driver or an executing test names it, and not where only a page does."""
    for name in ("driven.py", "helper.py", "tested.py", "idle.py"):
        tiny_site.write(f"examples/guide/{name}", "import helper\n" if name == "driven.py" else "true\n")
    tiny_site.write("examples/guide/plot_a.py", 'run("driven.py")\n')
    tiny_site.write(
        "tests/simulation/test_a.py", '"""Names idle.py in a docstring."""\nrun("examples/guide/tested.py")\n'
    )

    names = existing(tiny_site.root)

    assert names - executed(tiny_site.root, names) == {"examples/guide/idle.py"}
