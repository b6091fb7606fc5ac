"""What tests make of programs: a copy with some text changed, stand-ins for commands, and the losses they print."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.inputs import imported

from recordings.library_lines import aborted_at_exit


def edited(program: Path, folder: Path, edits: Iterable[tuple[str, str]] = ()) -> Path:
    """Copy a program into a folder, with text replaced that occurs once in it; return the copy."""
    text = program.read_text(encoding="utf-8")
    for old, new in edits:
        assert text.count(old) == 1, (program.name, old)
        text = text.replace(old, new)
    copy = folder / program.name
    copy.write_text(text, encoding="utf-8")
    return copy


def modules(program: Path) -> list[Path]:
    """Return the modules that a program imports, and that these import in turn, from its folder or the one above."""
    found = [program]
    for path in found:
        for _, name in imported(ast.walk(ast.parse(path.read_text(encoding="utf-8")))):
            beside = [folder / f"{name.partition('.')[0]}.py" for folder in (program.parent, program.parent.parent)]
            found += [module for module in beside if module.is_file() and module not in found][:1]
    return found[1:]


def expect_abort_at_exit(failed: bool, output: str) -> None:
    """Report a test as an expected failure if a run failed by PyTorch's abort at exit, and by nothing else."""
    if failed and aborted_at_exit(output):
        pytest.xfail(
            "PyTorch's gloo aborted at exit (pytorch/pytorch#190489): docs/troubleshooting/torch-abort-at-exit.md"
        )


def stand_ins(folder: Path, **commands: str) -> Path:
    """Write shell scripts that take the place of commands into `bin` in a folder; return that."""
    place = folder / "bin"
    place.mkdir(exist_ok=True)
    for name, text in commands.items():
        (place / name).write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
        (place / name).chmod(0o755)
    return place


def losses(text: str) -> list[float]:
    """Return the losses that stand at the ends of lines, in their order."""
    return [float(loss) for loss in re.findall(r"loss ([\d.]+)$", text, re.MULTILINE)]
