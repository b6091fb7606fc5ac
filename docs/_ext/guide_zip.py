"""The directive `guide-zip`, which links to a zip with everything of a guide; the build makes the zip.

It holds the scripts and programs, the packages that these import, and a `README.md` with the commands of the pages in
their order, taken from the pages themselves.
"""

from __future__ import annotations

import ast
import io
import re
import shlex
import stat
import sys
import zipfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from code_file import INCLUDED
from docutils import nodes
from repository import after_build, line, noted, root
from sphinx import addnodes
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from srunbook._files import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

FOLDER = "zips"
"""Where the zips lie in the site."""

REQUIREMENTS = "requirements.txt"

DISTRIBUTIONS = {"orbax": "orbax-checkpoint", "sklearn": "scikit-learn"}
"""Packages whose name on the index is not that of the module."""

FILE = re.compile(r"[\w./-]*\w\.(?:def|h5|py|sbatch|sh|txt|ya?ml)")
"""Names that a command takes for files of somebody's own, not for what a job has written."""

Files = dict[str, Path]
"""The files of a guide, by their names in the zip."""


class GuideError(ValueError):
    """A guide from which no zip can be made; the message says why."""


def files_of(root: Path, guide: str, shown: Iterable[str]) -> Files:
    """Collect the files of a guide: its own, and those of `examples/` and `scripts/` that its pages show.

    Args:
        root: Root of the repository.
        guide: Name of the guide's folders, such as `gloo_ddp`.
        shown: Files that its pages show, from the root of the repository.

    Raises:
        GuideError: Two files have the same name, and the zip has one folder.
    """
    found = {*(root / "slurm" / guide).glob("*.sbatch"), *(root / "examples" / guide).rglob("*")}
    found |= {root / name for name in shown if name.split("/")[0] in ("examples", "scripts")}
    files: Files = {}
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


def requirements_of(root: Path, guide: str, files: Files) -> str:
    """Write the `requirements.txt` of a guide: what its programs import, and what its own list names besides.

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
    if "torch" in wanted:
        lines.append("# On NVIDIA GPUs, install the torch for your driver first: the guide to torchrun says which.")
    return "\n".join([*lines, *(f"{name}=={pinned[name]}" for name in sorted(wanted))]) + "\n"


def needs_srunbook(files: Files) -> set[str]:
    """Name the files that need `srunbook`: they import or call it, or import or start a file that does."""
    used: dict[str, set[str]] = {}
    for name, path in files.items():
        if path.suffix == ".py":
            modules = imports_of(path)
            used[name] = {f"{module}.py" for module in modules} | (modules & {"srunbook"})
        elif path.suffix in (".sbatch", ".sh"):
            lines = path.read_text(encoding="utf-8").splitlines()
            code = "\n".join(line for line in lines if not line.lstrip().startswith(("#", "echo ")))
            used[name] = {*FILE.findall(code), *re.findall(r"\bsrunbook\b", code)}
    needing = {"srunbook"}
    while more := {name for name, names in used.items() if names & needing} - needing:
        needing |= more
    return needing


def words_of(command: str) -> list[str]:
    """Split a command into words as a shell does."""
    return shlex.split(command.replace("\\\n", ""))


def named_files(command: str) -> list[str]:
    """Name the files of somebody's own that a command names.

    >>> named_files("sbatch --nodes=4 ddp.sbatch train.py --data metr-la.h5")
    ['ddp.sbatch', 'train.py', 'metr-la.h5']
    """
    return [word for word in words_of(command) if FILE.fullmatch(word)]


@dataclass
class Command:
    """A command of a page, with where and when it ran; the stamp is empty if the page shows no run."""

    text: str
    stamp: str = ""


class Page(NamedTuple):
    """A page of a guide, with its commands in their order."""

    title: str
    address: str
    commands: list[Command]


def pages_of(doctrees: Mapping[str, nodes.document], base: str, files: Files) -> list[Page]:
    """Read the pages of a guide, the index first; what the index says after its list of chapters comes last."""
    (index, tree), *chapters = doctrees.items()
    elements = list(tree.findall(nodes.Element))
    place = next((place for place, node in enumerate(elements) if isinstance(node, addnodes.toctree)), len(elements))
    return [
        Page(title_of(tree), f"{base}{index}.html", commands_of(elements[:place], files)),
        *(
            Page(title_of(tree), f"{base}{name}.html", commands_of(tree.findall(nodes.Element), files))
            for name, tree in chapters
        ),
        Page("After the chapters", f"{base}{index}.html", commands_of(elements[place:], files)),
    ]


def title_of(tree: nodes.document) -> str:
    """Return the title of a page."""
    return next(str(node.astext()) for node in tree.findall(nodes.title))


def commands_of(elements: Iterable[nodes.Element], files: Files) -> list[Command]:
    """Read the commands of a page: its consoles, and the runs that it shows of the files of its guide.

    A run of a command that the page has named goes to that command.
    """
    found: list[Command] = []
    for node in elements:
        if isinstance(node, nodes.literal_block) and node.get("language") == "console":
            found.append(Command(in_one_folder(node.astext().strip().removeprefix("$ "), files)))
        elif isinstance(node, nodes.container) and "recorded" in node["classes"]:
            *_, literal = node.findall(nodes.literal)  # for a job, the name of its log comes first
            text = literal.astext()
            stamps = [line for line in node.findall(nodes.paragraph) if "badge-ran" in line["classes"]]
            if not all(name in files for name in named_files(text)):
                continue
            known = next((command for command in reversed(found) if command.text == text), None)
            if known is None:
                found.append(known := Command(text))
            known.stamp = str(stamps[0].children[0].astext()) if stamps else ""
    return found


def in_one_folder(command: str, files: Files) -> str:
    """Name the files of the repository that a command names as they lie in the zip, in one folder."""
    for name in named_files(command):
        short = PurePosixPath(name).name
        if "/" in name and short in files and files[short].as_posix().endswith(f"/{name}"):
            command = command.replace(name, short)
    return command


INTRODUCTION = """\
# {title}

The scripts and programs of <{address}>, and the commands of its pages in their order.

1. Put this folder, `{guide}`, on a disk that all nodes of your cluster see, and change into it.
2. Change the lines marked `EDIT` in the job scripts (`*.sbatch`).
3. Install the packages in `requirements.txt` into the environment that those lines name, and activate it.

Where a command says 17, put the number of your job, which `sbatch` prints.
Commands marked *Needs srunbook* use the command `srunbook` or its library: [install it]({install}) first.

## What is here

| File | What it does |
|---|---|"""


def readme(guide: str, pages: Sequence[Page], files: Files, install: str) -> str:
    """Write the `README.md` of a guide.

    Args:
        guide: Name of the folder in the zip.
        pages: The pages of the guide, its index first.
        files: Its files.
        install: Address of the page that says how to install `srunbook`.
    """
    head = INTRODUCTION.format(title=pages[0].title, address=pages[0].address, guide=guide, install=install)
    table = [f"| `{name}` | {summary(files[name])} |" for name in sorted(files)]
    table.append("| `requirements.txt` | the packages, with the versions that these programs ran with |")
    return "\n".join([head, *table, *chapters(pages, files)]) + "\n"


def summary(path: Path) -> str:
    """Return the first sentence that a file says of itself, from its docstring or its first comment."""
    lines = path.read_text(encoding="utf-8").splitlines()
    first = next((line for line in lines if line.strip() and not line.startswith(("#!", "# yaml-"))), "")
    said = re.fullmatch(r'(?:#+|""")\s*(.+?)(?:[.:]?(?:""")?|(?:\.|(?<=[?!])) .*)', first)
    return said[1].replace("|", r"\|") if said else ""


def chapters(pages: Sequence[Page], files: Files) -> Iterator[str]:
    """Write the commands of each page."""
    needing = needs_srunbook(files)
    known = {*files, REQUIREMENTS}
    for page in pages:
        if not page.commands:
            continue
        title = "The first page" if page is pages[0] else page.title  # whose title is that of the README
        yield f"\n## {title}\n\n<{page.address}>"
        for command in page.commands:
            words, named = words_of(command.text), named_files(command.text)
            known |= {after for word, after in pairwise(words) if word == "--output"}
            notes = [command.stamp] if command.stamp else []
            if needing & {words[0], *named}:
                notes.append("*Needs srunbook.*")
            notes += [f"Needs `{name}`, which is not in this folder." for name in named if name not in known]
            yield f"\n```bash\n{command.text}\n```"
            if notes:
                yield "\n" + " ".join(notes)


class GuideZip(SphinxDirective):
    """Link from the index of a guide to the zip of its files."""

    def run(self) -> list[nodes.Node]:
        """Write the link."""
        page = self.env.docname
        self.env.metadata[page]["guide-zip"] = guide = page.split("/")[-2]
        link = nodes.reference("", "", refuri=f"{'../' * page.count('/')}{FOLDER}/{guide}.zip", classes=["guide-zip"])
        link += nodes.Text("Everything of this guide in one zip")
        return [line(link, ": job scripts, programs, and all commands in order.", classes=["guide-zip-line"])]


def contents(env: BuildEnvironment, index: str) -> dict[str, tuple[bytes, int]]:
    """Collect bytes and mode of each file in the zip of a guide, by its name in the zip.

    Raises:
        GuideError: No zip can be made of the guide.
    """
    guide, repository = env.metadata[index]["guide-zip"], root(env)
    folder = guide.replace("-", "_")
    pages = [index, *env.toctree_includes.get(index, [])]
    files = files_of(repository, folder, [name for page in pages for name in noted(env, INCLUDED).get(page, [])])
    doctrees = {page: env.get_doctree(page) for page in pages}
    base = env.config.html_baseurl
    install = f"{base}start/install.html"
    made = {
        "LICENSE": (repository / "LICENSE").read_text(encoding="utf-8"),
        "README.md": readme(guide, pages_of(doctrees, base, files), files, install),
        REQUIREMENTS: requirements_of(repository, folder, files),
    }
    found = {
        name: (path.read_bytes(), 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
        for name, path in files.items()
    }  # git keeps no other modes
    found |= {name: (text.encode(), 0o644) for name, text in made.items()}
    return {f"{guide}/{name}": found[name] for name in sorted(found)}


def zipped(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    """Zip files, given with their bytes and modes; the same files make the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, (content, mode) in files.items():
            entry = zipfile.ZipInfo(name)  # of 1980
            entry.create_system = 3  # Unix, or the mode would mean nothing
            entry.external_attr = (stat.S_IFREG | mode) << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    return buffer.getvalue()


def write_zips(app: Sphinx) -> None:
    """Write the zips of all guides whose index links to one.

    Raises:
        ExtensionError: No zip can be made of a guide.
    """
    for index in sorted(page for page, facts in app.env.metadata.items() if "guide-zip" in facts):
        try:
            content = zipped(contents(app.env, index))
        except (GuideError, OSError) as error:
            raise ExtensionError(f"{index}: {error}") from error
        target = Path(app.outdir, FOLDER, f"{app.env.metadata[index]['guide-zip']}.zip")
        target.parent.mkdir(exist_ok=True)
        write_whole(target, content)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive, and make the zips after each build."""
    app.setup_extension("code_file")
    app.add_directive("guide-zip", GuideZip)
    after_build(app, write_zips)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
