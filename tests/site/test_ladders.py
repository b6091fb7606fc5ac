"""The ladder of each guide: how long its rungs are, what they import, and how its pages show them."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LONGEST_SCRIPT = 25
"""Lines of code of a guide's first job script."""

LONGEST_REQUEUE = 30
"""Lines of code of a job script that starts again after its time limit."""

LONGEST_FULL = 250
"""Lines of a full program."""

SITE_LINES = ("--partition", "--account", "--nodes", "--gpus-per-node", "--cpus-per-task", "--mem", "--time")
"""Directives of a first job script that depend on the site; a script for CPUs asks for no GPUs."""


@dataclass(frozen=True)
class Rung:
    """A program of a guide, and the earlier one that it changes.

    Args:
        name: Its file.
        earlier: The file that its page compares it with; empty for the first.
        most: Lines that it may have.
    """

    name: str
    earlier: str
    most: int


@dataclass(frozen=True)
class Ladder:
    """The rungs of one guide.

    Args:
        guide: Its name below examples/ and slurm/.
        script: Its first job script.
        imports: Packages that its rungs may import besides the standard library.
        rungs: From the program for one device up.
    """

    guide: str
    script: str
    imports: frozenset[str]
    rungs: tuple[Rung, ...]

    @property
    def pages(self) -> str:
        """Return the text of all pages of the guide."""
        name = self.guide.replace("_", "-")
        paths = sorted((ROOT / "docs" / "guides" / name).glob("*.*"))
        assert paths, name
        return "\n".join(path.read_text(encoding="utf-8") for path in paths)


LADDERS = (
    Ladder(
        "torchrun",
        "ddp.sbatch",
        frozenset({"torch", "numpy", "matplotlib"}),
        (
            Rung("one_gpu.py", "", 45),
            Rung("ddp.py", "one_gpu.py", 60),
            Rung("resume.py", "ddp.py", 91),
            Rung("requeue.py", "resume.py", 121),
            Rung("mixed_precision.py", "ddp.py", 80),
        ),
    ),
    Ladder(
        "does_not_fit",
        "fsdp.sbatch",
        frozenset({"torch", "jax", "numpy", "optax", "orbax", "accelerate", "lightning", "transformers"}),
        (
            Rung("ddp.py", "", 81),
            Rung("fsdp.py", "ddp.py", 91),
            Rung("hsdp.py", "fsdp.py", 107),
            Rung("resume.py", "fsdp.py", 148),
            Rung("requeue.py", "resume.py", 171),
            Rung("tensor_parallel.py", "ddp.py", 120),
            Rung("fsdp_tp.py", "tensor_parallel.py", 137),
            Rung("pipeline.py", "ddp.py", 95),
            Rung("context_parallel.py", "fsdp.py", 110),
            Rung("less_memory.py", "fsdp.py", 105),
            Rung("accelerate_fsdp.py", "ddp.py", 90),
            Rung("trainer_fsdp.py", "accelerate_fsdp.py", 110),
            Rung("lightning_fsdp_tp.py", "fsdp_tp.py", 155),
            Rung("sharded_jax.py", "", 111),
            Rung("resume_jax.py", "sharded_jax.py", 125),
        ),
    ),
    Ladder(
        "gloo_ddp",
        "ddp_cpu.sbatch",
        frozenset({"torch", "numpy", "matplotlib"}),
        (
            Rung("one_process.py", "", 45),
            Rung("ddp_cpu.py", "one_process.py", 60),
            Rung("resume.py", "ddp_cpu.py", 88),
            Rung("timed.py", "ddp_cpu.py", 90),
        ),
    ),
    Ladder(
        "jax_multinode",
        "data_parallel.sbatch",
        frozenset({"jax", "numpy", "matplotlib", "orbax"}),
        (
            Rung("one_device.py", "", 45),
            Rung("data_parallel.py", "one_device.py", 60),
            Rung("resume.py", "data_parallel.py", 85),
            Rung("requeue.py", "resume.py", 101),
            Rung("less_memory.py", "data_parallel.py", 85),
        ),
    ),
    Ladder(
        "lightning",
        "ddp.sbatch",
        frozenset({"lightning", "torch", "numpy", "matplotlib"}),
        (
            Rung("one_gpu.py", "", 45),
            Rung("ddp.py", "one_gpu.py", 48),
            Rung("requeue.py", "ddp.py", 81),
            Rung("less_memory.py", "ddp.py", 55),
        ),
    ),
)

RUNGS = [pytest.param(ladder, rung, id=f"{ladder.guide}-{rung.name}") for ladder in LADDERS for rung in ladder.rungs]
PER_GUIDE = [pytest.param(ladder, id=ladder.guide) for ladder in LADDERS]
FIRST_SCRIPTS = [*PER_GUIDE, pytest.param(Ladder("svgd", "my_svgd.sbatch", frozenset(), ()), id="svgd")]


def code_lines(text: str) -> int:
    r"""Count the lines of a program without blank ones and without the module's docstring.

    >>> code_lines('"Two\\nlines"\n\nx = 1  # kept\n# kept\n')
    2
    """
    first = ast.parse(text).body[0]
    described = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    lines = text.splitlines()[(first.end_lineno or 0) if described else 0 :]
    return sum(bool(line.strip()) for line in lines)


def script_lines(text: str) -> int:
    r"""Count the lines of code of a job script: directives are code, the first line and comments are not.

    >>> script_lines("#!/bin/bash\n# why\n#SBATCH --nodes=2\n\nsrun hostname\n")
    2
    """
    return sum(
        bool(line.strip()) and (line.startswith("#SBATCH") or not line.lstrip().startswith("#"))
        for line in text.splitlines()
    )


@pytest.mark.parametrize(("ladder", "rung"), RUNGS)
def test_rung_is_short(ladder: Ladder, rung: Rung) -> None:
    """A rung has no more lines than a reader takes in at once."""
    text = (ROOT / "examples" / ladder.guide / rung.name).read_text(encoding="utf-8")

    assert code_lines(text) <= rung.most


@pytest.mark.parametrize(("ladder", "rung"), RUNGS)
def test_rung_is_copied_whole(ladder: Ladder, rung: Rung) -> None:
    """A rung is one file: it imports its framework, numpy, matplotlib and the standard library."""
    tree = ast.parse((ROOT / "examples" / ladder.guide / rung.name).read_text(encoding="utf-8"))
    plain = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    named = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    packages = {name.partition(".")[0] for name in plain | named}

    assert packages
    assert packages <= ladder.imports | set(sys.stdlib_module_names)


@pytest.mark.parametrize(("ladder", "rung"), RUNGS)
def test_rung_is_shown_as_a_change(ladder: Ladder, rung: Rung) -> None:
    """The pages of a guide show its first rung whole or in a difference, and each later one beside the earlier."""
    folder = f"examples/{ladder.guide}"
    found = re.findall(
        r"code-diff(?:\}|::) (\S+)\n\s*:from: (\S+)",
        ladder.pages,
    )
    shown = {(name, earlier) for name, earlier in found}

    if rung.earlier:
        assert (f"{folder}/{rung.name}", f"{folder}/{rung.earlier}") in shown
    else:
        assert f"{folder}/{rung.name}" in {name for pair in shown for name in pair}


@pytest.mark.parametrize("ladder", PER_GUIDE)
def test_full_programs_are_readable(ladder: Ladder) -> None:
    """No program of a guide is longer than a reader follows."""
    folder = ROOT / "examples"
    lengths = {
        path.relative_to(folder).as_posix(): code_lines(path.read_text(encoding="utf-8"))
        for path in (folder / ladder.guide).rglob("*.py")
    }

    assert not [name for name, lines in lengths.items() if lines > LONGEST_FULL]


@pytest.mark.parametrize("ladder", FIRST_SCRIPTS)
def test_first_script_is_short_and_marked(ladder: Ladder) -> None:
    """The first job script fits on a screen, and every line that depends on the site says EDIT."""
    text = (ROOT / "slurm" / ladder.guide / ladder.script).read_text(encoding="utf-8")
    directives = dict(re.findall(r"^#SBATCH (--[a-z-]+)=\S*(.*)$", text, re.MULTILINE))

    assert script_lines(text) <= LONGEST_SCRIPT
    for name in SITE_LINES:
        assert "EDIT" in directives.get(name, "EDIT" if name == "--gpus-per-node" else ""), name
    assert any("EDIT" in line and not line.startswith("#SBATCH") for line in text.splitlines()), "the environment"


LATER = {*ROOT.glob("slurm/*/requeue.sbatch"), *ROOT.glob("slurm/does_not_fit/*.sbatch")}


@pytest.mark.parametrize("path", sorted(LATER), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_script_of_a_later_rung_is_short(path: Path) -> None:
    """So do those that stop in time, and all of the guide whose programs are longer."""
    longest = LONGEST_REQUEUE if path.stem == "requeue" else LONGEST_SCRIPT
    assert script_lines(path.read_text(encoding="utf-8")) <= longest


@pytest.mark.parametrize("ladder", FIRST_SCRIPTS)
def test_pages_highlight_what_a_reader_edits(ladder: Ladder) -> None:
    """A job script with lines to edit is shown with exactly these highlighted."""
    pattern = r"code-file(?:\}|::) (slurm/\S+\.sbatch)\n((?:\s*:[a-z-]+: .*\n)*)"
    shown = re.findall(pattern, ladder.pages)

    assert f"slurm/{ladder.guide}/{ladder.script}" in [name for name, _ in shown]
    for name, options in shown:
        marked = "EDIT" in (ROOT / name).read_text(encoding="utf-8")
        assert re.findall(r":emphasize-[a-z]+: (.*)", options) == (["EDIT"] if marked else []), name
