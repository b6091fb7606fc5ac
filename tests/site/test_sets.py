"""Three sets are equal: the files that exist, those that pages show, and those that run."""

from __future__ import annotations

import ast
import json
import posixpath
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

EXECUTING = {
    "examples": ("tests/simulation", "tests/cluster"),
    "slurm": ("tests/cluster",),
    "scripts": ("tests/simulation", "tests/cluster", "tests/unit"),
}
"""Folders of files that pages show, and those whose tests execute them: a job script is run by Slurm alone.

tests/gpu does not count: it runs on few machines, and by nobody's default.
"""

PATTERNS = {
    "slurm/*/*.sbatch": "tests/cluster/test_scripts.py",
    "examples/failures/slurm-*/*.sh": "tests/cluster/test_slurm_failures.py",
    "examples/failures/slurm-*/*.sbatch": "tests/cluster/test_slurm_failures.py",
    "examples/*/requirements.txt": "tests/simulation/test_script_forms.py",
    "examples/ready_scripts/*.sbatch": "tests/cluster/test_generate.py",
    "examples/slurm_configs/*.yaml": "tests/cluster/test_generate.py",
}
"""Files that a test finds by a pattern, whose last part it names."""


def existing(root: Path) -> set[str]:
    """Return the files that somebody wrote to be shown."""
    files = [path for folder in EXECUTING for path in (root / folder).rglob("*") if path.is_file()]
    names = {path.relative_to(root).as_posix() for path in files if path.name != "GALLERY_HEADER.rst"}
    return {name for name in names if "__pycache__" not in name and not name.endswith(".recording.json")}


WORD = re.compile(r"[\w./-]+")


def words_of(path: Path) -> set[str]:
    """Return the words by which a program or script may name files: no comment, no docstring, but its imports."""
    if path.suffix not in (".py", ".sbatch", ".sh"):
        return set()
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return set(WORD.findall(text))
    nodes = list(ast.walk(ast.parse(text)))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    words: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            words.update(word.rstrip(".") for word in WORD.findall(node.value))
        elif isinstance(node, ast.Import):
            words.update(f"{alias.name}.py" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            words.add(f"{node.module}.py")
    return words


def named(file: Path, names: set[str]) -> set[str]:
    """Return the files of which a program names every folder and the name; comments and docstrings do not count."""
    parts = {part for word in words_of(file) for part in word.split("/")}
    return {name for name in names if {*name.split("/")[1:]} <= parts}


def executed(root: Path, names: set[str]) -> set[str]:
    """Return the drivers, all of which ran if the build passed, what a test names, and what one of these names."""
    found = {path.relative_to(root).as_posix() for path in root.glob("examples/*/plot_*.py")}
    for pattern, test in PATTERNS.items():
        if (root / test).is_file() and Path(pattern).name in (root / test).read_text(encoding="utf-8"):
            found |= {name for name in names if fnmatchcase(name, pattern)}
    for folder, places in EXECUTING.items():
        own = {name for name in names if name.startswith(folder)}
        for test in (test for place in places for test in (root / place).rglob("*.py")):
            found |= named(test, own)
    waiting = [*found]
    while waiting:
        name = waiting.pop()
        top = name.partition("/")[0]
        places = {f"{folder}/{word}" for word in words_of(root / name) for folder in (top, posixpath.dirname(name))}
        used = {place for place in map(posixpath.normpath, places) if place.startswith(f"{top}/")} & names
        waiting += used - found
        found |= used
    return found & names


def test_every_file_is_shown(included):
    """Every file in examples/, slurm/ and scripts/ stands on a page, and every file that a page shows exists."""
    names = existing(ROOT)

    assert len(names) > 10
    assert sorted(names - {*included}) == []
    assert not {name for name in included if not (ROOT / name).is_file()}


@pytest.mark.built
def test_every_file_is_executed():
    """Every file in examples/, slurm/ and scripts/ is run by a driver or by a test."""
    names = existing(ROOT)

    assert sorted(names - executed(ROOT, names)) == []


def test_file_that_is_not_shown_or_not_run(tiny_site):
    """A file that no page shows is found; one that is only mentioned, or that only tests/gpu names, is not run."""
    for name in ("driven.py", "helper.py", "tested.py", "mentioned.py", "on_gpu.py"):
        tiny_site.write(f"examples/guide/{name}", {"driven.py": "import helper\n"}.get(name, "x = 1\n"))
    tiny_site.write(
        "examples/guide/plot_a.py", '"""\nA\n=\n\nSee mentioned.py.\n"""\n# mentioned.py\nRUN = "driven.py"\n'
    )
    tiny_site.write("tests/gpu/test_a.py", 'run("examples/guide/on_gpu.py")\n')
    tiny_site.write(
        "tests/simulation/test_a.py", '"""Beside mentioned.py."""\nGUIDE = ROOT / "guide"\nrun("tested.py")\n'
    )
    tiny_site.page("```{code-file} examples/guide/tested.py\n```")
    build = tiny_site.build()
    included = json.loads(build.site.with_name("site-included.json").read_text())
    names = existing(tiny_site.root)

    assert build.returncode == 0, build.output
    assert "examples/guide/mentioned.py" in names - {*included}
    assert "examples/guide/tested.py" not in names - {*included}
    assert names - executed(tiny_site.root, names) == {"examples/guide/mentioned.py", "examples/guide/on_gpu.py"}


def test_no_doctest_is_skipped():
    """Every example in a docstring runs."""
    files = [
        path
        for name in ("src", "docs/_ext", "recordings", "examples", "scripts", "bench")
        for path in (ROOT / name).rglob("*.py")
    ]
    skipping = re.compile(r"doctest:.*\+SKIP|__doctest_skip__")

    assert [path.name for path in files if skipping.search(path.read_text(encoding="utf-8"))] == []
    assert skipping.search(">>> 1 / 0  # doctest: +ELLIPSIS, +SKIP")
