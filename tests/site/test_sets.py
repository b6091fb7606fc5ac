"""Three sets are equal: the files that exist, those that pages show, and those that run."""

from __future__ import annotations

import ast
import functools
import json
import re
from fnmatch import fnmatchcase
from pathlib import Path

import gallery_guard

ROOT = Path(__file__).resolve().parents[2]

EXECUTING = {
    "examples": ("tests/simulation", "tests/cluster", "tests/cluster/faults"),
    "slurm": ("tests/cluster", "tests/cluster/faults"),
    "scripts": ("tests/simulation", "tests/cluster", "tests/cluster/faults", "tests/unit"),
}
"""Folders of files that pages show, and those whose tests execute them: a job script is run by Slurm alone.

tests/gpu does not count: it runs on few machines, and by nobody's default.
"""


def existing(root: Path) -> set[str]:
    """Return the files that somebody wrote to be shown."""
    found = set()
    for folder in EXECUTING:
        for path in (root / folder).rglob("*"):
            name = path.relative_to(root).as_posix()
            if path.is_file() and "__pycache__" not in name and not path.name.endswith(".recording.json"):
                found.add(name)
    return {name for name in found if Path(name).name != "GALLERY_HEADER.rst"}


class Named(ast.NodeVisitor):
    """Collects the files that a test names: path expressions such as `ROOT / "slurm" / name` and whole paths.

    A folder by itself names nothing. Where the last part of a path is a variable, it may be any of the module's
    strings. `glob` and `rglob` name what their pattern fits.
    """

    def __init__(self, path: Path) -> None:
        self.folders = {"ROOT": ""}
        self.patterns: set[str] = set()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docstrings]
        self.strings = {node.value for node in constants if isinstance(node.value, str) and "." in node.value}
        self.patterns |= {text for text in self.strings if text.split("/")[0] in EXECUTING}
        self.visit(tree)

    def value(self, node: ast.expr) -> str | None:
        """Return the path from the root of the repository that an expression stands for, if it can be told."""
        if isinstance(node, ast.Name):
            return self.folders.get(node.id)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and isinstance(node.right, ast.Constant):
            left = self.value(node.left)
            return None if left is None else f"{left}/{node.right.value}".strip("/")
        return None

    def visit_Assign(self, node: ast.Assign) -> None:
        """Remember a folder that has a name."""
        folder = self.value(node.value)
        if folder is not None and isinstance(node.targets[0], ast.Name):
            self.folders[node.targets[0].id] = folder
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Take a path that is put together."""
        left = self.value(node.left) if isinstance(node.op, ast.Div) else None
        if left and isinstance(node.right, ast.Constant):
            self.patterns.add(f"{left}/{node.right.value}")
        elif left:
            self.patterns |= {f"{left}/{text}" for text in self.strings if not set(text) & set("*?[")}
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Take the pattern of a glob."""
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in ("glob", "rglob"):
            folder = self.value(function.value)
            if folder and node.args and isinstance(node.args[0], ast.Constant):
                self.patterns.add(f"{folder}/{'*/' if function.attr == 'rglob' else ''}{node.args[0].value}")
        self.generic_visit(node)


@functools.cache
def patterns_of(test: Path) -> frozenset[str]:
    """Return what a test names."""
    return frozenset(Named(test).patterns)


def executed(root: Path, names: set[str]) -> set[str]:
    """Return the files that a driver started when the site was built, or that a test of their folder names.

    A test names a file in its code; comments and docstrings are not code.
    """
    found = {path.relative_to(root).as_posix() for path in gallery_guard.executed(root)}
    for folder, places in EXECUTING.items():
        tests = {path for place in places for path in (root / place).rglob("*.py")}
        patterns = set().union(*map(patterns_of, tests))
        found |= {
            name for name in names if any(fnmatchcase(name, text) for text in patterns) and name.startswith(folder)
        }
    return found & names


def unshown(names: set[str], included: dict[str, list[str]]) -> set[str]:
    """Return the files that no page shows."""
    return names - set(included)


def test_every_file_is_shown(included):
    """Every file in examples/, slurm/ and scripts/ stands on a page."""
    names = existing(ROOT)
    missing = sorted(unshown(names, included))

    assert len(names) > 10
    assert missing == []


def test_every_file_is_executed(built_site):
    """Every file in examples/, slurm/ and scripts/ is run by a driver or by a test."""
    names = existing(ROOT)
    missing = sorted(names - executed(ROOT, names))

    assert built_site.is_dir()
    assert missing == []


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
    """A file counts as run where a driver started it or an executing test names it, and not where it is mentioned."""
    programs = ("driven.py", "helper.py", "alone.py", "whole.py", "parts.py", "last.py")
    mentioned = ("idle.py", "looked_at.py", "mentioned.py", "on_gpu.py", "GALLERY_HEADER_x.py")
    for name in (*programs, *mentioned):
        tiny_site.write(f"examples/guide/{name}", {"driven.py": "import helper\n"}.get(name, "1 / 0\n"))
    tiny_site.write("examples/guide/helper.py", '"""Beside mentioned.py."""  # import mentioned\n')
    tiny_site.write("examples/guide/alone.py", "x = 1\n")
    for name in ("one.sbatch", "two.sbatch"):
        tiny_site.write(f"slurm/guide/{name}", "true\n")
    tiny_site.write(
        "examples/guide/plot_a.py",
        '"""\nA title\n=======\n\nSee mentioned.py.\n"""\n'
        "import subprocess\nimport sys\n\nfrom srunbook import simulate\n\n"
        "# run mentioned.py\n"
        'assert simulate.run([sys.executable, "driven.py"]).returncode == 0\n'
        'subprocess.run([sys.executable, "alone.py"], check=True)\n'
        'print("mentioned.py")\n',
    )
    tiny_site.write("tests/gpu/test_d.py", 'run("examples/guide/on_gpu.py")\n')
    tiny_site.write(
        "tests/simulation/test_a.py",
        '"""Names idle.py and examples/guide/idle.py in a docstring."""\n'
        "# run(ROOT / 'examples' / 'guide' / 'idle.py')\n"
        'GUIDE = ROOT / "examples" / "guide"\n'
        'run("examples/guide/whole.py", GUIDE / "parts.py")\n'
        'for name in ["last.py"]:\n'
        "    run(GUIDE / name)\n"
        'check((ROOT / "slurm").rglob("*.sbatch"), "*.py")\n',
    )
    tiny_site.write("tests/unit/test_b.py", 'look("examples/guide/looked_at.py")\n')
    build = tiny_site.build()
    assert build.returncode == 0, build.output
    names = existing(tiny_site.root)

    before = names - executed(tiny_site.root, names)
    tiny_site.write(
        "tests/cluster/test_c.py", 'for path in (ROOT / "slurm" / "guide").glob("o*.sbatch"):\n    submit(path)\n'
    )
    after = names - executed(tiny_site.root, names)

    idle = {f"examples/guide/{name}" for name in mentioned}
    assert before == idle | {"slurm/guide/one.sbatch", "slurm/guide/two.sbatch"}
    assert after == idle | {"slurm/guide/two.sbatch"}


def test_no_doctest_is_skipped():
    """Every example in a docstring runs."""
    skips = [
        path.relative_to(ROOT).as_posix()
        for folder in ("src", "docs/_ext", "examples", "scripts", "bench")
        for path in (ROOT / folder).rglob("*.py")
        if skipped_doctests(path.read_text(encoding="utf-8"))
    ]

    assert skips == []


def skipped_doctests(text: str) -> bool:
    """Tell whether a text has an example that doctest leaves out."""
    return re.search(r"doctest:.*\+SKIP|__doctest_skip__", text) is not None


def test_skipped_doctest_is_found():
    """The search knows the directive that leaves out an example."""
    assert skipped_doctests(">>> 1 / 0  # doctest: +SK" + "IP")
    assert skipped_doctests(">>> 1 / 0  # doctest: +ELLIPSIS, +SK" + "IP")
    assert not skipped_doctests(">>> 1  # doctest: +ELLIPSIS")
