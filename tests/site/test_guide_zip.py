"""The zips of the guides: the files of the repository, commands that the pages show, and fitted job scripts."""

from __future__ import annotations

import ast
import json
import re
import stat
import sys
import zipfile
from pathlib import Path

import pytest
from guide_zip import files_of, requirements
from sphinx.errors import ExtensionError

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ("does-not-fit", "gloo-ddp", "jax-multinode", "lightning", "svgd", "torchrun")
MADE = ("LICENSE", "README.md", "requirements.txt")
DISTRIBUTIONS = {"orbax": "orbax-checkpoint", "sklearn": "scikit-learn"}
"""Packages whose name on the index is not that of the module."""


def unpacked(path: Path) -> dict[str, tuple[bytes, int]]:
    """Return the bytes and the mode of each file in a zip, by its name in the only folder."""
    with zipfile.ZipFile(path) as archive:
        assert {name.split("/")[0] for name in archive.namelist()} == {path.stem}
        return {
            entry.filename.removeprefix(f"{path.stem}/"): (archive.read(entry), entry.external_attr >> 16)
            for entry in archive.infolist()
        }


def consoles(page: Path) -> list[str]:
    """Return the commands of a page in its source."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"^( *)\$ ((?:.*\\\n)*.*)", text, re.MULTILINE)
    return ["\n".join(line.removeprefix(indent) for line in command.split("\n")) for indent, command in found]


def imports_of(program: bytes) -> set[str]:
    """Return the top-level modules that a program imports anywhere, without those of the standard library."""
    names = set()
    for statement in ast.walk(ast.parse(program)):
        if isinstance(statement, ast.Import):
            names |= {alias.name.split(".")[0] for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            names.add(statement.module.split(".")[0])
    return names - sys.stdlib_module_names


@pytest.mark.parametrize("guide", GUIDES)
def test_contents_are_the_files_of_the_guide(built_site, included, guide):
    """The zip has all that the guide's folders and pages show, byte for byte, and what its programs import."""
    files = unpacked(built_site / "zips" / f"{guide}.zip")
    own = tuple(f"{folder}/{guide.replace('-', '_')}/" for folder in ("examples", "slurm"))
    paths = [path for folder in own for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".sbatch")]
    paths += [
        ROOT / name
        for name, pages in included.items()
        if name.startswith(("examples/", "scripts/")) and any(page.startswith(f"guides/{guide}/") for page in pages)
    ]
    expected = {path.name: path for path in paths if not path.name.startswith("plot_")}
    packages = [line for line in files["requirements.txt"][0].decode().splitlines() if not line.startswith("#")]
    imports = {name for path in files if path.endswith(".py") for name in imports_of(files[path][0])}

    assert {*files} == {*expected, *MADE}
    for name in {*expected} - {*MADE}:
        assert files[name][0] == expected[name].read_bytes(), name
        assert bool(files[name][1] & stat.S_IXUSR) == bool(expected[name].stat().st_mode & stat.S_IXUSR), name
    assert {*packages} <= {*(ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()}
    known = {*files, "srunbook.py", *(f"{line.partition('==')[0]}.py" for line in packages)}
    assert {f"{DISTRIBUTIONS.get(name, name)}.py" for name in imports} <= known


@pytest.mark.parametrize("guide", GUIDES)
def test_commands_are_those_of_the_pages(built_site, guide):
    """A README has every command of its pages in their order, and otherwise only those of recordings."""
    text = unpacked(built_site / "zips" / f"{guide}.zip")["README.md"][0].decode()
    found = re.findall(r"^```bash\n(.*?)\n```", text, re.MULTILINE | re.DOTALL)
    folder = ROOT / "docs" / "guides" / guide
    index = next(folder.glob("index.*"))
    chapters = re.findall(r"^(?: {3})?([\w-]+)$", index.read_text(encoding="utf-8").split("toctree")[1], re.MULTILINE)
    pages = [index, *(next(folder.glob(f"{name}.*")) for name in chapters if any(folder.glob(f"{name}.*")))]
    shown = [re.sub(r"examples/slurm_configs/", "", command) for page in pages for command in consoles(page)]
    recordings = [path for name in ("examples", "slurm") for path in (ROOT / name).rglob("*.recording.json")]
    recorded = {json.loads(path.read_text(encoding="utf-8"))["command"] for path in recordings}
    rest = iter(found)

    assert shown
    assert [command for command in shown if command not in rest] == []  # `rest` is used up from front to back
    assert {*found} - {*shown} <= recorded


def test_wrong_lists(tmp_path):
    """A package without a version, a pattern without files and two files of one name fail the build."""
    (tmp_path / "constraints.txt").write_text("torch==2.13.0\n", encoding="utf-8")
    for name in ("a/train.py", "a/full/train.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    with pytest.raises(ExtensionError, match=r"constraints\.txt has no version of unheard_of"):
        requirements(tmp_path, ["torch", "unheard_of"])
    with pytest.raises(ExtensionError, match=r"a/\*\.sbatch: no file matches"):
        files_of(tmp_path, ["a/*.sbatch"])
    with pytest.raises(ExtensionError, match=r"two files have the name train\.py"):
        files_of(tmp_path, ["a/*.py", "a/full/*.py"])
