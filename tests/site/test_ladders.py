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

LONGEST_REQUEUE = 32
"""Lines of code of a job script that starts again after its time limit."""


SITE_LINES = ("--partition", "--account", "--nodes", "--gpus-per-node", "--cpus-per-task", "--mem", "--time")
"""Directives of a first job script that depend on the site; a script for CPUs asks for no GPUs."""


TORCH = {"torch", "numpy", "matplotlib"}
IMPORTS = {
    "torchrun": TORCH,
    "does_not_fit": {*TORCH, "jax", "optax", "orbax", "accelerate", "lightning", "transformers"},
    "gloo_ddp": TORCH,
    "jax_multinode": {"jax", "numpy", "matplotlib", "orbax"},
    "lightning": {*TORCH, "lightning"},
}
"""Packages that the rungs of a guide may import besides the standard library."""

LADDERS = """
torchrun: one_gpu 45, ddp/one_gpu 60, resume/ddp 103, requeue/resume 137, mixed_precision/ddp 80
does_not_fit: ddp 82, fsdp/ddp 92, hsdp/fsdp 106, resume/fsdp 192, requeue/resume 218, tensor_parallel/ddp 124, \
fsdp_tp/tensor_parallel 141, pipeline/ddp 100, context_parallel/fsdp 111, less_memory/fsdp 105, \
accelerate_fsdp/ddp 90, trainer_fsdp/accelerate_fsdp 110, lightning_fsdp_tp/fsdp_tp 155, sharded_jax 113, \
resume_jax/sharded_jax 176
gloo_ddp: one_process 45, ddp_cpu/one_process 60, resume/ddp_cpu 100, timed/ddp_cpu 90
jax_multinode: one_device 45, data_parallel/one_device 60, resume/data_parallel 124, requeue/resume 145, \
less_memory/data_parallel 85
lightning: one_gpu 45, ddp/one_gpu 48, requeue/ddp 98, less_memory/ddp 55
"""
"""The programs of each guide: NAME/EARLIER, where a page shows it as a change of another, and its most lines."""

RUNGS = [
    (guide, f"{name}.py", f"{earlier}.py" if earlier else "", int(most))
    for guide, ladder in re.findall(r"^(\w+): (.*)$", LADDERS, re.MULTILINE)
    for name, earlier, most in re.findall(r"(\w+)(?:/(\w+))? (\d+)", ladder)
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


def pages_of(guide: str) -> str:
    """Return the text of all pages of a guide."""
    folder = ROOT / "docs" / "guides" / guide.replace("_", "-")
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.*")))


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


@pytest.mark.parametrize(("guide", "name", "earlier", "most"), RUNGS)
def test_rung(guide: str, name: str, earlier: str, most: int) -> None:
    """A rung is short, imports its framework alone, saves whole models, and stands on a page beside the earlier one."""
    text = (ROOT / "examples" / guide / name).read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(text)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    named = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    packages = {module.partition(".")[0] for module in plain | named}
    shown = set(re.findall(r"code-diff(?:\}|::) examples/(\S+)\n\s*:from: examples/(\S+)", pages_of(guide)))

    assert code_lines(text) <= most
    assert packages <= IMPORTS[guide] | set(sys.stdlib_module_names)
    assert not re.search(r'(torch\.save|np\.savez)\(.*"(model|best)[^"]*(?<!tmp)\.(pt|npz)"', text)
    if earlier:
        assert (f"{guide}/{name}", f"{guide}/{earlier}") in shown
    else:
        assert f"{guide}/{name}" in {path for pair in shown for path in pair}


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


LATER = {*ROOT.glob("slurm/*/requeue.sbatch"), *ROOT.glob("slurm/does_not_fit/*.sbatch")}


@pytest.mark.parametrize("path", sorted(LATER), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_script_of_a_later_rung_is_short(path: Path) -> None:
    """So do those that stop in time, and all of the guide whose programs are longer."""
    longest = LONGEST_REQUEUE if path.stem == "requeue" else LONGEST_SCRIPT
    assert script_lines(path.read_text(encoding="utf-8")) <= longest


@pytest.mark.parametrize("guide", FIRST_SCRIPTS)
def test_pages_highlight_what_a_reader_edits(guide: str) -> None:
    """A job script with lines to edit is shown with exactly these highlighted."""
    pattern = r"code-file(?:\}|::) (slurm/\S+\.sbatch)\n((?:\s*:[a-z-]+: .*\n)*)"
    shown = re.findall(pattern, pages_of(guide))

    assert f"slurm/{guide}/{FIRST_SCRIPTS[guide]}.sbatch" in [name for name, _ in shown]
    for name, options in shown:
        marked = "EDIT" in (ROOT / name).read_text(encoding="utf-8")
        assert re.findall(r":emphasize-[a-z]+: (.*)", options) == (["EDIT"] if marked else []), name
