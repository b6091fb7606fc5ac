"""Which page shows a file and what runs it: a report beside the site, and the directive `file-table`."""

from __future__ import annotations

import ast
import fnmatch
import json
import posixpath
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from code_file import INCLUDED
from docutils import nodes
from repository import disclosure, note, noted, root
from sphinx.util.docutils import SphinxDirective

from srunbook._files import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

EXECUTING = {
    "examples": ("tests/simulation", "tests/cluster"),
    "slurm": ("tests/cluster",),
    "scripts": ("tests/simulation", "tests/cluster", "tests/unit"),
}
"""Folders of files that pages show, and those whose tests execute them: a job script is run by Slurm alone.

tests/gpu does not count: it runs on few machines, and by nobody's default.
"""

PATTERNS = {
    "examples/*/plot_*.py": "the build of this site",
    "slurm/*/*.sbatch": "tests/cluster/test_scripts.py",
    "examples/failures/slurm-*/*.sh": "tests/cluster/test_slurm_failures.py",
    "examples/failures/slurm-*/*.sbatch": "tests/cluster/test_slurm_failures.py",
    "examples/*/requirements.txt": "tests/simulation/test_script_forms.py",
    "examples/ready_scripts/*.sbatch": "tests/cluster/test_generate.py",
    "examples/slurm_configs/*.yaml": "tests/cluster/test_generate.py",
    "examples/failures/*/*.py": "tests/simulation/test_failures.py",
    "examples/*/*.py": "tests/simulation/test_recorded_programs.py",
}
"""Files that a test finds by a pattern, whose last part it names; for programs, it also names their folder."""

WORD = re.compile(r"[\w./-]+")


def pages_of(env: BuildEnvironment) -> dict[str, list[str]]:
    """Return the pages that show a file, by its path from the root of the repository."""
    pages: dict[str, set[str]] = {}
    for page, files in noted(env, INCLUDED).items():
        for name in files:
            pages.setdefault(name, set()).add(page)
    for page in env.found_docs:
        if page.startswith("gallery/") and not page.endswith("index"):
            pages.setdefault(f"examples/{page.removeprefix('gallery/')}.py", set()).add(page)
    return {name: sorted(pages[name]) for name in sorted(pages)}


def words_of(path: Path) -> set[str]:
    """Return the words by which a program or script may name files: no comment, no docstring, but its imports."""
    if path.suffix not in (".py", ".sbatch", ".sh"):
        return set()
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return set(WORD.findall(text))
    statements = list(ast.walk(ast.parse(text)))
    docstrings = {id(node.value) for node in statements if isinstance(node, ast.Expr)}
    words: set[str] = set()
    for node in statements:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            words.update(word.rstrip(".") for word in WORD.findall(node.value))
        elif isinstance(node, ast.Import):
            words.update(f"{alias.name}.py" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            words.add(f"{node.module}.py")
    return words


def is_compared(root: Path, test: str, name: str) -> bool:
    """Whether a test compares a program with its recording: it names the folder, and not the program as left out."""
    words = words_of(root / test)
    left_out = name.removeprefix("examples/").removesuffix(".py") in words
    return name.split("/")[1] in words and not left_out and (root / name).with_suffix(".recording.json").exists()


def named(root: Path, names: Iterable[str]) -> dict[str, set[str]]:
    """Return what runs each file by itself: the build, and the tests that name all its folders and its name."""
    runners: dict[str, set[str]] = {name: set() for name in names}
    for pattern, runner in PATTERNS.items():
        text = (root / runner).read_text(encoding="utf-8") if (root / runner).is_file() else ""
        if Path(pattern).name in text or not runner.startswith("tests/"):
            found = fnmatch.filter(runners, pattern)
            for name in filter(partial(is_compared, root, runner), found) if pattern.endswith("/*.py") else found:
                runners[name].add(runner)
    for folder, places in EXECUTING.items():
        for test in (test for place in places for test in (root / place).rglob("*.py")):
            parts = {part for word in words_of(test) for part in word.split("/")}
            for name in runners:
                if name.startswith(f"{folder}/") and {*name.split("/")[1:]} <= parts:
                    runners[name].add(test.relative_to(root).as_posix())
    return runners


def runners_of(root: Path, names: Iterable[str]) -> dict[str, set[str]]:
    """Return what runs each file, by itself or through another file that names it."""
    runners = named(root, names)
    waiting = [name for name in runners if runners[name]]
    while waiting:
        name = waiting.pop()
        top = name.partition("/")[0]
        places = {f"{folder}/{word}" for word in words_of(root / name) for folder in (top, posixpath.dirname(name))}
        for used in {*map(posixpath.normpath, places)} & runners.keys():
            if used.startswith(f"{top}/") and not runners[name] <= runners[used]:
                runners[used] |= runners[name]
                waiting.append(used)
    return runners


class FileTable(SphinxDirective):
    """Lists the files of each page, and what runs them, folded up by the folder of the page."""

    def run(self) -> list[nodes.Node]:
        """Leave an empty place, which is filled when all pages are read."""
        note(self.env, "file-table", True)
        return [nodes.container(file_table=True)]


def fill(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Fill the place on a page."""
    for place in [box for box in doctree.findall(nodes.container) if "file_table" in box]:
        pages = pages_of(app.env)
        runners = runners_of(root(app.env), [name for name in pages if name.split("/")[0] in EXECUTING])
        parts: dict[str, dict[str, list[str]]] = {}
        for name in runners:
            for shown in pages[name]:
                parts.setdefault(posixpath.dirname(shown), {}).setdefault(shown, []).append(name)
        for part, files in sorted(parts.items()):
            items = [
                nodes.list_item(
                    "",
                    nodes.paragraph("", "", link_to(app, page, shown)),
                    nodes.bullet_list("", *(item(name, runners[name]) for name in names)),
                )
                for shown, names in sorted(files.items())
            ]
            place += disclosure("", nodes.bullet_list("", *items), summary=part or "first page")


def link_to(app: Sphinx, page: str, shown: str) -> nodes.reference:
    """Make a link from a page to another."""
    return nodes.reference("", shown, internal=True, refuri=app.builder.get_relative_uri(page, shown))


def item(name: str, runners: set[str]) -> nodes.list_item:
    """Make the item of a file."""
    return nodes.list_item(
        "", nodes.paragraph("", "", nodes.literal("", name), nodes.Text(f": {', '.join(sorted(runners))}"))
    )


def table_pages(_app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Name the page with the table, to be written anew by every build."""
    return [*noted(env, "file-table")]


def report(app: Sphinx, exception: Exception | None) -> None:
    """Write beside the site which pages show which file; a build that failed has no such report."""
    path = Path(app.outdir).with_name(f"{Path(app.outdir).name}-included.json")
    path.unlink(missing_ok=True)
    if exception is None and not app.statuscode and not (app._warncount and app._fail_on_warnings):
        write_whole(path, json.dumps(pages_of(app.env), indent=2) + "\n")


def setup(app: Sphinx) -> dict[str, int]:
    """Register the directive and the report."""
    app.setup_extension("code_file")
    app.add_directive("file-table", FileTable)
    app.connect("env-updated", table_pages)
    app.connect("doctree-resolved", fill)
    app.connect("build-finished", report)
    return {"env_version": 1}
