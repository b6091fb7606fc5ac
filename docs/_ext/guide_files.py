"""What the zip of a guide holds: its scripts and programs, the packages that these import, and who needs `srunbook`."""

from __future__ import annotations

import ast
import re
import shlex
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

DISTRIBUTIONS = {"orbax": "orbax-checkpoint", "sklearn": "scikit-learn"}
"""Packages whose name on the index is not that of the module."""

REQUIREMENTS = "requirements.txt"

FILE = re.compile(r"[\w./-]*\w\.(?:def|h5|py|sbatch|sh|txt|ya?ml)")
"""Names that a command takes for files of somebody's own, not for what a job has written."""


class GuideError(ValueError):
    """A guide from which no zip can be made; the message says why."""


def files_of(root: Path, guide: str, shown: Iterable[str]) -> dict[str, Path]:
    """Collect the files of a guide, which go into one folder, as its pages ask for.

    Args:
        root: Root of the repository.
        guide: Name of the guide's folders, such as `gloo_ddp`.
        shown: Files that its pages show, from the root of the repository. Those of `examples/` and `scripts/` go
            with the guide, wherever they are; benchmarks and tests of the repository do not.

    Returns:
        Path of each file by its name in the folder, without the drivers of the gallery and without recordings.

    Raises:
        GuideError: Two files have the same name.
    """
    found = {*(root / "slurm" / guide).glob("*.sbatch"), *(root / "examples" / guide).rglob("*")}
    found |= {root / name for name in shown if name.split("/")[0] in ("examples", "scripts")}
    files: dict[str, Path] = {}
    for path in sorted(found):
        inner = path.name.startswith("plot_") or path.name.endswith(".recording.json") or "__pycache__" in path.parts
        if not path.is_file() or inner or path.name in ("GALLERY_HEADER.rst", REQUIREMENTS):
            continue
        if path.name in files:
            raise GuideError(f"{path} and {files[path.name]} have the same name, and the zip of {guide} has one folder")
        files[path.name] = path
    return files


def imports_of(program: Path) -> set[str]:
    """Return the top-level modules that a program imports anywhere, without those of the standard library."""
    found = set()
    for node in ast.walk(ast.parse(program.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found - sys.stdlib_module_names


def requirements_of(root: Path, guide: str, files: Mapping[str, Path]) -> str:
    """Write the `requirements.txt` of a guide.

    Args:
        root: Root of the repository, with the versions in `constraints.txt`.
        guide: Name of the guide's folders.
        files: Its files.

    Returns:
        One line for each package, with the version in `constraints.txt`: what the programs import, and what the
        guide's own `requirements.txt` names besides.

    Raises:
        GuideError: `constraints.txt` has no version of a package.
    """
    modules = {name for path in files.values() if path.suffix == ".py" for name in imports_of(path)}
    modules -= {"srunbook"} | {name.removesuffix(".py") for name in files}
    wanted = {DISTRIBUTIONS.get(name, name) for name in modules}
    own = root / "examples" / guide / REQUIREMENTS
    if own.is_file():
        wanted |= set(re.findall(r"^[\w-]+", own.read_text(encoding="utf-8"), re.MULTILINE))
    constraints = (root / "constraints.txt").read_text(encoding="utf-8")
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)", constraints, re.MULTILINE))
    missing = sorted(wanted - pinned.keys())
    if missing:
        raise GuideError(f"constraints.txt has no version of {', '.join(missing)}, which programs of {guide} import")
    lines = ["# The exact versions that the guide was made with."]
    if "jax" in wanted:
        lines.append(f'# Without "jax[cuda12]=={pinned["jax"]}", JAX computes on CPUs: install that for NVIDIA GPUs.')
    return "\n".join([*lines, *(f"{name}=={pinned[name]}" for name in sorted(wanted))]) + "\n"


def needs_srunbook(files: Mapping[str, Path]) -> set[str]:
    """Name the files that need `srunbook`: they import or call it, or import or start a file that does."""
    used: dict[str, set[str]] = {}
    for name, path in files.items():
        if path.suffix == ".py":
            modules = imports_of(path)
            used[name] = {f"{module}.py" for module in modules} | (modules & {"srunbook"})
        elif path.suffix in (".sbatch", ".sh"):
            lines = path.read_text(encoding="utf-8").splitlines()
            code = "\n".join(line for line in lines if not line.lstrip().startswith(("#", "echo ")))
            used[name] = set(FILE.findall(code)) | set(re.findall(r"\bsrunbook\b", code))
    needing = {name for name, names in used.items() if "srunbook" in names}
    while more := {name for name, names in used.items() if names & needing} - needing:
        needing |= more
    return needing


def words_of(command: str) -> list[str]:
    """Split a command into words as a shell does, those in quotes too; one that no shell would take, at its spaces."""
    try:
        return shlex.split(command.replace("\\\n", ""))
    except ValueError:
        return command.split()


def named_files(command: str) -> list[str]:
    """Name the files of somebody's own that a command names.

    >>> named_files("sbatch --nodes=4 ddp.sbatch train.py --data metr-la.h5")
    ['ddp.sbatch', 'train.py', 'metr-la.h5']
    >>> named_files("python draw_particles.py particles.npz particles.png")
    ['draw_particles.py']
    """
    return [word for word in words_of(command) if FILE.fullmatch(word)]
