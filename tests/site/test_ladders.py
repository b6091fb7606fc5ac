"""The ladder of each guide: how long its rungs are, what they import, and how its pages show them."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LONGEST_SCRIPT = 25
"""Lines of code of a guide's first job script."""

LONGEST_REQUEUE = {"requeue": 35, "requeue_container": 40}
"""Lines of code of a job script that starts again after its time limit."""


SITE_LINES = ("--partition", "--account", "--nodes", "--gpus-per-node", "--cpus-per-task", "--mem", "--time")
"""Directives of a first job script that depend on the site; a script for CPUs asks for no GPUs."""


TORCH = {"torch", "numpy", "matplotlib"}
IMPORTS = {
    "torchrun": {*TORCH, "batch_norm"},
    "does_not_fit": {*TORCH, "jax", "optax", "orbax", "accelerate", "lightning", "transformers"},
    "gloo_ddp": TORCH,
    "jax_multinode": {"jax", "numpy", "matplotlib", "orbax"},
    "lightning": {*TORCH, "lightning", "same_model"},
}
"""What the rungs of a guide may import besides the standard library: packages, and a file beside them."""

LONGEST_FIRST = {"does_not_fit": 114}
"""Lines of code of the first programs of a guide with a larger model. The others have 60 at most."""

MOST_MORE = 100
"""Lines of code by which a program may be longer than the one that it is shown as a change of."""


def pages_of(guide: str) -> str:
    """Return the text of all pages of a guide."""
    folder = ROOT / "docs" / "guides" / guide.replace("_", "-")
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.*")))


def changes(guide: str) -> dict[str, str]:
    """Return the programs that a guide shows as a change of an earlier one, with that."""
    place = rf"examples/{guide}/(\w+\.py)"
    return dict(re.findall(rf"code-diff(?:\}}|::) {place}\n\s*:from: {place}", pages_of(guide)))


RUNGS = [
    (guide, name, changes(guide).get(name, ""))
    for guide in IMPORTS
    for name in sorted({*changes(guide), *changes(guide).values()})
]
FIRST_SCRIPTS = {
    "torchrun": "ddp",
    "does_not_fit": "fsdp",
    "gloo_ddp": "ddp_cpu",
    "jax_multinode": "data_parallel",
    "lightning": "ddp",
    "svgd": "my_svgd",
}
"""The first job script of each guide."""


def code_lines(text: str) -> int:
    r"""Count the lines of code of a program: the module's docstring and comments are not.

    >>> code_lines('"Two\\nlines"\n\n# why\nx = 1  # counts\n')
    1
    """
    first = ast.parse(text).body[0]
    described = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    lines = text.splitlines()[(first.end_lineno or 0) if described else 0 :]
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in lines)


def script_lines(text: str) -> int:
    r"""Count the lines of code of a job script: directives are code, the first line and comments are not.

    >>> script_lines("#!/bin/bash\n# why\n#SBATCH --nodes=2\n\nsrun hostname\n")
    2
    """
    return sum(
        bool(line.strip()) and (line.startswith("#SBATCH") or not line.lstrip().startswith("#"))
        for line in text.splitlines()
    )


@pytest.mark.parametrize(("guide", "name", "earlier"), RUNGS)
def test_rung(guide: str, name: str, earlier: str) -> None:
    """A rung is short, imports its framework alone, and saves whole models."""
    folder = ROOT / "examples" / guide
    text = (folder / name).read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(text)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    named = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    packages = {module.partition(".")[0] for module in plain | named}
    before = code_lines((folder / earlier).read_text(encoding="utf-8")) if earlier else 0

    assert code_lines(text) <= (before + MOST_MORE if earlier else LONGEST_FIRST.get(guide, 60))
    assert packages <= IMPORTS[guide] | set(sys.stdlib_module_names)
    assert not re.search(r'(torch\.save|np\.savez)\(.*"(model|best)[^"]*(?<!tmp)\.(pt|npz)"', text)


@pytest.mark.parametrize("guide", IMPORTS)
def test_full_programs_are_readable(guide: str) -> None:
    """No program of a guide has more than 250 lines, and none that is copied imports srunbook, but one that says so."""
    programs = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "examples" / guide).rglob("*.py")}
    importing = [name for name, text in programs.items() if re.search(r"^(from|import) srunbook\b", text, re.MULTILINE)]

    assert [name for name, text in programs.items() if code_lines(text) > 250] == []
    assert [name for name in importing if not name.startswith("plot_")] == ["train_requeue.py"] * (guide == "torchrun")


@pytest.mark.parametrize("guide", FIRST_SCRIPTS)
def test_first_script_is_short_and_marked(guide: str) -> None:
    """The first job script fits on a screen, and every line that depends on the site says EDIT."""
    text = (ROOT / "slurm" / guide / f"{FIRST_SCRIPTS[guide]}.sbatch").read_text(encoding="utf-8")
    directives = dict(re.findall(r"^#SBATCH (--[a-z-]+)=\S*(.*)$", text, re.MULTILINE))

    assert script_lines(text) <= LONGEST_SCRIPT
    for name in SITE_LINES:
        assert "EDIT" in directives.get(name, "EDIT" if name == "--gpus-per-node" else ""), name
    assert any("EDIT" in line and not line.startswith("#SBATCH") for line in text.splitlines()), "the environment"


LATER = {*ROOT.glob("slurm/*/requeue*.sbatch"), *ROOT.glob("slurm/does_not_fit/*.sbatch")}


@pytest.mark.parametrize("path", sorted(LATER), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_script_of_a_later_rung_is_short(path: Path) -> None:
    """So do those that stop in time, and all of the guide whose programs are longer."""
    assert script_lines(path.read_text(encoding="utf-8")) <= LONGEST_REQUEUE.get(path.stem, LONGEST_SCRIPT)


@pytest.mark.parametrize("guide", FIRST_SCRIPTS)
def test_pages_highlight_what_a_reader_edits(guide: str) -> None:
    """A job script with lines to edit is shown with exactly these highlighted."""
    pattern = r"code-file(?:\}|::) (slurm/\S+\.sbatch)\n((?:\s*:[a-z-]+: .*\n)*)"
    shown = re.findall(pattern, pages_of(guide))

    assert f"slurm/{guide}/{FIRST_SCRIPTS[guide]}.sbatch" in [name for name, _ in shown]
    for name, options in shown:
        marked = "EDIT" in (ROOT / name).read_text(encoding="utf-8")
        assert re.findall(r":emphasize-[a-z]+: (.*)", options) == (["EDIT"] if marked else []), name
