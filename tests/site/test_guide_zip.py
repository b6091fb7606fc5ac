"""The zips of the guides: the files of the repository, and commands that the pages show."""

from __future__ import annotations

import io
import json
import re
import stat
import zipfile
from pathlib import Path

import pytest
from guide_files import GuideError, files_of, needs_srunbook, requirements_of
from guide_readme import summary
from guide_zip import zipped
from support.zip_reader import Line, lines

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ("does-not-fit", "gloo-ddp", "jax-multinode", "lightning", "svgd", "torchrun")
MADE = ("LICENSE", "README.md", "requirements.txt")
CONSTRAINTS = "jax==0.10.2\nnumpy==2.4.6\ntorch==2.13.0\n"

INDEX = """\
Words.

```{guide-zip}
```

```{toctree}
convert
```
"""

CONVERT = """\
# Convert

```console
$ sbatch ddp.sbatch
```

```console
$ sbatch ddp.sbatch --epochs 3 mine.py
```

```{code-file} examples/small_guide/ddp.py
```

```{recorded} examples/small_guide/ddp.py
```
"""


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


@pytest.fixture(params=GUIDES)
def guide(request) -> str:
    """Return the name of each guide."""
    return str(request.param)


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


def test_helper_scripts_can_be_executed(built_site):
    """The x bits of the helpers reach the zip, which the test above would not see if the repository lost them."""
    files = unpacked(built_site / "zips" / "gloo-ddp.zip")

    assert {name for name, (_, mode) in files.items() if mode & stat.S_IXUSR} == {
        "run_multinode.sh",
        "verify_multinode.sh",
    }


def test_commands_are_those_of_the_pages(built_site, guide):
    """A README has every command of its pages in their order, and otherwise only commands that recordings bear."""
    text = unpacked(built_site / "zips" / f"{guide}.zip")["README.md"][0].decode()
    found = [line.text for line in lines(text)]
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


def test_versions_are_those_of_the_constraints(built_site, guide):
    """Each package has exactly the version of constraints.txt, and what the page's own list names is among them."""
    written = unpacked(built_site / "zips" / f"{guide}.zip")["requirements.txt"][0].decode().splitlines()
    packages = [line for line in written if not line.startswith("#")]
    own = ROOT / "examples" / guide.replace("-", "_") / "requirements.txt"
    named = re.findall(r"^[\w-]+", own.read_text(encoding="utf-8"), re.MULTILINE) if own.exists() else []

    assert {"jax", "torch"} & {line.split("==")[0] for line in packages}
    assert {*packages} <= {*(ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()}
    assert {*named} <= {line.split("==")[0] for line in packages}


def test_index_links_to_the_zip(built_site, guide):
    """The first page of a guide has the link, which leads to the file from any folder."""
    text = (built_site / "guides" / guide / "index.html").read_text(encoding="utf-8")

    assert re.search(
        rf'<a class="[^"]*guide-zip[^"]*" href="\.\./\.\./zips/{guide}\.zip">Everything of this guide', text
    )


@pytest.fixture
def small_guide(tiny_site):
    """Make a guide of two pages, with one job script, one program and a helper."""
    tiny_site.write("slurm/small_guide/ddp.sbatch", "#!/bin/bash\n# Trains. Submit it.\nsrun python ddp.py\n")
    tiny_site.write("examples/small_guide/ddp.py", '"""Train: on CPUs."""\n\nimport torch\n')
    tiny_site.write("examples/small_guide/GALLERY_HEADER.rst", "Small guide\n-----------\n")
    tiny_site.write("examples/small_guide/help.sh", "#!/bin/bash\nsrunbook verify\n").chmod(0o755)
    tiny_site.write("constraints.txt", CONSTRAINTS)
    tiny_site.write("LICENSE", "MIT\n")
    tiny_site.pages({"guides/small-guide/index": INDEX, "start/install": "Words."})
    tiny_site.write("docs/guides/small-guide/convert.md", CONVERT.partition("```{recorded}")[0])
    return tiny_site


def test_small_guide(small_guide):
    """The zip is made by the build, the same bytes from the same files; modes are those of git."""
    first = small_guide.build("-D", "plot_gallery=0")
    assert first.returncode == 0, first.output
    path = first.site / "zips" / "small-guide.zip"
    before = path.read_bytes()
    files = unpacked(path)
    for name in ("examples/small_guide/ddp.py", "examples/small_guide/help.sh"):
        (small_guide.root / name).touch()
    (small_guide.root / "examples/small_guide/ddp.py").chmod(0o664)
    path.unlink()
    second = small_guide.build("-D", "plot_gallery=0")
    readme = files["README.md"][0].decode()

    assert second.returncode == 0, second.output
    assert path.read_bytes() == before
    assert {name: mode & 0o777 for name, (_, mode) in files.items()} == {
        "LICENSE": 0o644,
        "README.md": 0o644,
        "ddp.py": 0o644,
        "ddp.sbatch": 0o644,
        "help.sh": 0o755,
        "requirements.txt": 0o644,
    }
    assert files["requirements.txt"][0].decode().splitlines()[1:] == ["torch==2.13.0"]
    assert lines(readme) == [
        Line("sbatch ddp.sbatch", ""),
        Line("sbatch ddp.sbatch --epochs 3 mine.py", "Needs `mine.py`, which is not in this folder."),
    ]
    assert "| `ddp.sbatch` | Trains |" in readme


def test_a_package_without_version_stops_the_build(small_guide):
    """A program that imports what constraints.txt does not know leaves the site without a zip, and says so."""
    small_guide.write("examples/small_guide/ddp.py", "import unheard_of\n")
    build = small_guide.build("-D", "plot_gallery=0")

    assert build.returncode != 0
    assert "constraints.txt has no version of unheard_of, which programs of small_guide import" in build.output


def test_only_an_index_has_a_zip(tiny_site):
    """The directive on another page is an error with its line."""
    tiny_site.page("```{guide-zip}\n```")

    assert tiny_site.build().complaints("guide-zip: index is not the index of a guide")


def test_two_files_of_one_name_are_refused(tmp_path):
    """All files lie in one folder, so the second would take the place of the first."""
    for name in ("examples/a_guide/train.py", "examples/a_guide/full/train.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    with pytest.raises(GuideError, match=r"train\.py have the same name"):
        files_of(tmp_path, "a_guide", [])


def test_who_needs_srunbook():
    """Whoever imports it, calls it, or starts somebody who does; a mention in a docstring or a comment is none."""
    needing = {guide: needs_srunbook(files_of(ROOT, guide.replace("-", "_"), [])) for guide in GUIDES}
    scripts = needs_srunbook({path.name: path for path in (ROOT / "scripts").glob("*.sh")})

    assert needing["torchrun"] == {"train_requeue.py", "run_requeue.sbatch"}
    assert needing["gloo-ddp"] == needing["jax-multinode"] == set()
    assert needing["lightning"] == {"benchmark.py"}
    assert {"my_svgd.py", "slurm_multinode.sbatch"} <= needing["svgd"]
    assert "count_code.py" not in needing["svgd"]
    assert scripts == {"verify_multinode.sh"}


@pytest.mark.parametrize("guide", GUIDES)
def test_programs_save_apart(guide):
    """In the one folder of a zip, no command of a docstring finds the checkpoints of another program."""
    programs = (ROOT / "examples" / guide.replace("-", "_")).rglob("*.py")
    text = "".join(path.read_text(encoding="utf-8").replace("\\\n", " ") for path in programs)
    saving = set(re.findall(r"^    .*?(\w+\.py) .*?--checkpoint-dir (\w+)", text, re.MULTILINE))
    folders = [folder for _, folder in saving]

    assert (guide == "torchrun") <= bool(saving)
    assert len(set(folders)) == len(folders), saving


def test_requirements_tell_of_gpus(tmp_path):
    """JAX from the plain package computes on CPUs, which the file says."""
    (tmp_path / "constraints.txt").write_text(CONSTRAINTS, encoding="utf-8")
    program = tmp_path / "a.py"
    program.write_text("import os\nimport jax.numpy\n\n\ndef later():\n    from numpy import linalg\n    import a\n")
    written = requirements_of(tmp_path, "a_guide", {"a.py": program}).splitlines()

    assert written[2:] == ["jax==0.10.2", "numpy==2.4.6"]
    assert '"jax[cuda12]==0.10.2"' in written[1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("#!/bin/bash\n# Trains on a | b. Submit it:\n", r"Trains on a \| b"),
        ('"""Where does it go? Nowhere."""\n', "Where does it go?"),
        ('"""Train on one GPU:\n\npython a.py\n"""\n', "Train on one GPU"),
        ("# yaml-language-server: $schema=x\nname: a\n", ""),
        ("", ""),
    ],
)
def test_summary(tmp_path, text, said):
    """A file's first sentence says what it is."""
    (tmp_path / "a").write_text(text, encoding="utf-8")

    assert summary(tmp_path / "a") == said


def test_zipped_is_a_zip():
    """Names keep their order, dates are fixed."""
    with zipfile.ZipFile(io.BytesIO(zipped({"a/b": (b"b", 0o755), "a/a": (b"", 0o644)}))) as archive:
        listed = [(entry.filename, entry.date_time[0], entry.external_attr >> 16) for entry in archive.infolist()]

    assert listed == [("a/b", 1980, stat.S_IFREG | 0o755), ("a/a", 1980, stat.S_IFREG | 0o644)]
