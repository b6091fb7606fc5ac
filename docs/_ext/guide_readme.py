"""The `README.md` in the zip of a guide: the commands of its pages, in their order, taken from the pages themselves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from docutils import nodes
from guide_files import named_files, needs_srunbook, words_of
from sphinx import addnodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path


@dataclass
class Command:
    """A command of a page.

    Args:
        text: The command, without the prompt.
        stamp: Where and when it ran; empty if the page shows no run.
    """

    text: str
    stamp: str = ""


@dataclass(frozen=True)
class Page:
    """A page of a guide.

    Args:
        title: Its title.
        address: Its address.
        commands: Its commands, in their order.
    """

    title: str
    address: str
    commands: Sequence[Command]


def pages_of(doctrees: Mapping[str, nodes.document], base: str, files: Mapping[str, Path]) -> list[Page]:
    """Read the pages of a guide in the order of a reader, who comes to the end of the index after the chapters.

    Args:
        doctrees: The pages by their names, the index first.
        base: Address of the site.
        files: The files of the guide, by their names in the zip.
    """
    index, *chapters = ((f"{base}{name}.html", list(tree.findall(nodes.Element))) for name, tree in doctrees.items())
    place = next((place for place, node in enumerate(index[1]) if isinstance(node, addnodes.toctree)), len(index[1]))
    return [
        Page(title_of(index[1]), index[0], commands_of(index[1][:place], files)),
        *(Page(title_of(content), address, commands_of(content, files)) for address, content in chapters),
        Page("After the chapters", index[0], commands_of(index[1][place:], files)),
    ]


def commands_of(elements: Iterable[nodes.Element], files: Mapping[str, Path]) -> list[Command]:
    """Read the commands of a page: its consoles, and the runs that it shows of the files of its guide.

    A run of a command that the page has named goes to that command.
    """
    found: list[Command] = []
    for node in elements:
        if isinstance(node, nodes.literal_block) and node.get("language") == "console":
            found.append(Command(in_one_folder(node.astext().strip().removeprefix("$ "), files)))
        elif isinstance(node, nodes.container) and "recorded" in node["classes"]:
            text, stamp = run_of(node)
            if not all(name in files for name in named_files(text)):
                continue
            known = next((command for command in reversed(found) if command.text == text), None)
            if known is None:
                found.append(known := Command(text))
            known.stamp = stamp
    return found


def in_one_folder(command: str, files: Mapping[str, Path]) -> str:
    """Name the files of the repository that a command names as they lie in the zip, in one folder."""
    for name in named_files(command):
        short = PurePosixPath(name).name
        if "/" in name and short in files and files[short].as_posix().endswith(f"/{name}"):
            command = command.replace(name, short)
    return command


def run_of(box: nodes.container) -> tuple[str, str]:
    """Return the command and the stamp of a run that a page shows."""
    *_, literal = box.findall(nodes.literal)  # for a job, the name of its log comes first
    command = literal.astext()
    stamps = [line for line in box.findall(nodes.paragraph) if "badge-ran" in line["classes"]]
    return command, str(stamps[0].children[0].astext()) if stamps else ""


def title_of(elements: Iterable[nodes.Element]) -> str:
    """Return the title of a page."""
    return next(str(node.astext()) for node in elements if isinstance(node, nodes.title))


def readme(guide: str, pages: Sequence[Page], files: Mapping[str, Path], install: str) -> str:
    """Write the `README.md` of a guide.

    Args:
        guide: Name of the folder in the zip.
        pages: The pages of the guide, its index first.
        files: Its files, by their names in the folder.
        install: Address of the page that says how to install `srunbook`.
    """
    needing = needs_srunbook(files)
    return "\n".join([*introduction(guide, pages[0], files, install), *chapters(pages, files, needing)]) + "\n"


def introduction(guide: str, index: Page, files: Mapping[str, Path], install: str) -> Iterator[str]:
    """Write what the folder is and what lies in it."""
    yield f"# {index.title}"
    yield f"\nThe scripts and programs of <{index.address}>, and the commands of its pages in their order."
    yield f"""
1. Put this folder, `{guide}`, on a disk that all nodes of your cluster see, and change into it.
2. Change the lines marked `EDIT` in the job scripts (`*.sbatch`).
3. Install the packages in `requirements.txt` into the environment that those lines name, and activate it.

Where a command says 17, put the number of your job, which `sbatch` prints.
Commands marked *Needs srunbook* use the command `srunbook` or its library: [install it]({install}) first.

## What is here

| File | What it does |
|---|---|"""
    for name in sorted(files):
        yield f"| `{name}` | {summary(files[name])} |"
    yield "| `requirements.txt` | the packages, with the versions that these programs ran with |"


def summary(path: Path) -> str:
    """Return the first sentence that a file says of itself, from its docstring or its first comment."""
    lines = path.read_text(encoding="utf-8").splitlines()
    first = next((line for line in lines if line.strip() and not line.startswith(("#!", "# yaml-"))), "")
    said = re.fullmatch(r'(?:#+|""")\s*(.+?)(?:[.:]?(?:""")?|(?:\.|(?<=[?!])) .*)', first)
    return said[1].replace("|", r"\|") if said else ""


def chapters(pages: Sequence[Page], files: Mapping[str, Path], needing: set[str]) -> Iterator[str]:
    """Write the commands of each page."""
    made: set[str] = set()
    for page in pages:
        if not page.commands:
            continue
        title = "The first page" if page is pages[0] else page.title  # whose title is that of the README
        yield f"\n## {title}\n\n<{page.address}>"
        for command in page.commands:
            named = [name for name in named_files(command.text) if name not in made]
            words = words_of(command.text)
            made |= {after for word, after in pairwise(words) if word == "--output"}
            absent = [name for name in named if name not in files and name not in (*made, "requirements.txt")]
            notes = [command.stamp] if command.stamp else []
            if words[0] == "srunbook" or needing & {*named}:
                notes.append("*Needs srunbook.*")
            notes += [f"Needs `{name}`, which is not in this folder." for name in absent]
            yield f"\n```bash\n{command.text}\n```"
            if notes:
                yield "\n" + " ".join(notes)
