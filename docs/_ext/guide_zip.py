"""The directive `guide-zip`, which links to a zip with everything of a guide; the build makes the zip.

    ```{guide-zip} numpy torch
    examples/torchrun/**/*.py
    slurm/torchrun/*.sbatch
    ```

The zip holds the files listed, without the drivers of the gallery, the packages named with their pinned versions, and a
`README.md` with the commands of the guide's pages in their order.
"""

from __future__ import annotations

import re
import shlex
import shutil
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from zipfile import ZIP_DEFLATED, ZipFile

from docutils import nodes
from recorded import NAMES
from repository import after_build, line, noted, root
from sphinx import addnodes
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from srunbook.simulate import GENERATIONS

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

FOLDER = "zips"
"""Where the zips lie in the site."""

README = """\
# {title}

The scripts and programs of <{address}>, and the commands of its pages in their order.

1. Put this folder, `{guide}`, on a disk that all nodes of your cluster see, and change into it.
2. Change the lines marked `EDIT` in the job scripts (`*.sbatch`).
3. Install the packages in `requirements.txt` into the environment that those lines name, and activate it.

Where a command says 17, put the number of your job, which `sbatch` prints.
Programs that import `srunbook`, and commands that call it, need the package: [install it]({install}) first.

## What is here

| File | What it does |
|---|---|
{table}
| `requirements.txt` | the packages, with the versions that these programs ran with |

{commands}
"""

FILE = re.compile(r"[\w./-]*\w\.(?:def|h5|py|sbatch|sh|txt|ya?ml)")
"""Names that a command takes for files of somebody's own, not for what a job has written."""

NOTES = {
    "jax": '# Without "jax[cuda12]=={version}", JAX computes on CPUs: install that for NVIDIA GPUs.',
    "torch": "# On NVIDIA GPUs, install torch first: the page on installing PyTorch says which build.",
}
"""What `requirements.txt` says about a package."""


class GuideZip(SphinxDirective):
    """Link from the index of a guide to the zip of its files, and say which versions the guide was tested with."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Write the link."""
        page = self.env.docname
        guide = page.split("/")[-2]
        packages = self.arguments[0].split()
        self.env.metadata[page]["guide-zip"] = (guide, packages, list(self.content))
        self.env.note_dependency(str(root(self.env) / "constraints.txt"))
        pinned = versions(root(self.env))
        tested = [f"{NAMES[name]} {pinned[name]}" for name in packages if name in NAMES]
        about = addnodes.pending_xref(
            "", nodes.Text("Tested"), refdomain="std", reftype="doc", refexplicit=True, reftarget="/about/tested"
        )
        link = nodes.reference("", "", refuri=f"{'../' * page.count('/')}{FOLDER}/{guide}.zip", classes=["guide-zip"])
        link += nodes.Text("Everything in this guide as one zip")
        what = ": job scripts, programs, and all commands in order. "
        slurm = f" with {', '.join(tested)} on Slurm {', '.join(GENERATIONS)}."
        return [line(link, what, about, slurm, classes=["guide-zip-line"])]


def files_of(root: Path, patterns: list[str]) -> dict[str, Path]:
    """Return the files that a guide lists, by their names in the zip."""
    files: dict[str, Path] = {}
    for pattern in patterns:
        paths = [path for path in sorted(root.glob(pattern)) if not path.name.startswith("plot_")]
        twice = [path for path in paths if path.name in files]
        if twice or not paths:
            wrong = f"two files have the name {twice[0].name}" if twice else "no file matches"
            raise ExtensionError(f"guide-zip: {pattern}: {wrong}")
        files |= {path.name: path for path in paths}
    return files


def versions(root: Path) -> dict[str, str]:
    """Return the versions of `constraints.txt` by package."""
    constraints = (root / "constraints.txt").read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)==(\S+)", constraints, re.MULTILINE))


def requirements(root: Path, packages: list[str]) -> str:
    """Write the `requirements.txt` of a guide, with the versions of `constraints.txt`."""
    pinned = versions(root)
    if missing := {*packages} - pinned.keys():
        raise ExtensionError(f"guide-zip: constraints.txt has no version of {', '.join(sorted(missing))}")
    notes = [NOTES[name].format(version=pinned[name]) for name in packages if name in NOTES]
    head = ["# The exact versions that the guide was made with.", *notes]
    return "\n".join([*head, *(f"{name}=={pinned[name]}" for name in packages)]) + "\n"


def commands_of(tree: nodes.document, files: dict[str, Path]) -> list[tuple[str, str]]:
    """Return the commands of a page, its consoles and those whose output it shows, with the stamps of their runs."""
    commands: list[tuple[str, str]] = []
    for node in tree.findall(nodes.Element):
        if isinstance(node, nodes.literal_block) and node.get("language") == "console":
            command = str(node.astext()).strip().removeprefix("$ ")
            for name, path in files.items():  # in the zip, all of them lie in one folder
                command = re.sub(rf"\S*\b{path.parent.name}/{re.escape(name)}", name, command)
            commands.append((command, ""))
        elif "recorded" in node.get("classes", ()):
            caption, block, stamp = node.children
            if block["recording"].split(".")[0] in {path.stem for path in files.values()}:
                *_, literal = caption.findall(nodes.literal)  # for a job, the name of its log comes first
                ran = (str(literal.astext()), str(stamp[0].astext()))
                places = [place for place, (command, _) in enumerate(commands) if command == ran[0]]
                if places and "exit status" in ran[1]:  # made to fail, which the reader's run should not
                    continue
                place = places[-1] if places else len(commands)
                commands[place : place + 1] = [ran]
    return commands


def summary(path: Path) -> str:
    """Return the first sentence that a file says of itself, from its docstring or its first comment."""
    lines = path.read_text(encoding="utf-8").splitlines()
    first = next((line for line in lines if line.strip() and not line.startswith(("#!", "# yaml-"))), "")
    sentence = re.fullmatch(r'(?:#+|""")\s*(.+?)(?:[.:]?(?:""")?|(?:\.|(?<=[?!])) .*)', first)
    return sentence[1].replace("|", r"\|") if sentence else ""


def readme(env: BuildEnvironment, index: str, guide: str, files: dict[str, Path]) -> str:
    """Write the `README.md` of a guide."""
    base = env.config.html_baseurl
    known = {*files, "requirements.txt"}
    parts = []
    for page in [index, *env.toctree_includes.get(index, [])]:
        commands = commands_of(env.get_doctree(page), files)
        parts += [f"## {env.titles[page].astext()}", f"<{base}{page}.html>"] if commands else []
        for command, stamp in commands:
            words = shlex.split(command.replace("\\\n", ""))
            known |= {after for word, after in pairwise(words) if word == "--output"}
            absent = [word for word in words if FILE.fullmatch(word) and word not in known]
            notes = [stamp, *(f"Needs `{name}`, which is not in this folder." for name in absent)]
            parts += [f"```bash\n{command}\n```", *filter(None, [" ".join(notes).strip()])]
    return README.format(
        title=env.titles[index].astext(),
        address=f"{base}{index}.html",
        guide=guide,
        install=f"{base}start/install.html",
        table="\n".join(f"| `{name}` | {summary(files[name])} |" for name in sorted(files)),
        commands="\n\n".join(parts),
    )


def write_zips(app: Sphinx) -> None:
    """Write the zips of all guides whose index links to one."""
    repository = root(app.env)
    Path(app.outdir, FOLDER).mkdir(exist_ok=True)
    for index, (guide, packages, patterns) in noted(app.env, "guide-zip").items():
        files = files_of(repository, patterns)
        target = Path(app.outdir, FOLDER, f"{guide}.zip")
        with TemporaryDirectory() as name, ZipFile(target, "w", ZIP_DEFLATED) as zipped:
            folder = Path(name)
            for path in [repository / "LICENSE", *files.values()]:
                shutil.copy(path, folder)  # with its x bit
            (folder / "README.md").write_text(readme(app.env, index, guide, files), encoding="utf-8")
            (folder / "requirements.txt").write_text(requirements(repository, packages), encoding="utf-8")
            for path in sorted(folder.iterdir()):
                zipped.write(path, f"{guide}/{path.name}")


def setup(app: Sphinx) -> dict[str, int]:
    """Register the directive, and make the zips after each build."""
    app.add_directive("guide-zip", GuideZip)
    after_build(app, write_zips)
    return {"env_version": 1}  # of what is noted of a page
