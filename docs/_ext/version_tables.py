"""Which versions of Python and the frameworks run the programs, from recordings/versions.json.

The directive `versions` writes the line of a guide, named by its folder in `examples/`; `versions-table` writes the
table of one package. `python3 noxfile.py -s versions -- --record` makes the file.
"""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from docutils import nodes
from recorded import NAMES
from repository import FileError, root
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sphinx.application import Sphinx

FILE = "recordings/versions.json"

FEW = 3
"""So many programs that a version doesn't run are named in the line of a guide; above that, it counts."""


class Row(NamedTuple):
    """One environment: what the row is about, the date, what was installed, and what each program did wrong."""

    package: str
    date: str
    versions: dict[str, str]
    programs: dict[str, str]

    @property
    def version(self) -> str:
        """Return the version of the package, without what comes after the minor one."""
        return ".".join(self.versions[self.package].split(".")[:2])

    def of(self, folder: str) -> dict[str, str]:
        """Return the programs of one folder of `examples/`."""
        return {name: wrong for name, wrong in self.programs.items() if name.startswith(f"{folder}/")}


def title(package: str) -> str:
    """Return the name of a package, as sentences write it."""
    return "Orbax" if package == "orbax-checkpoint" else NAMES[package]


def ends(versions: Iterable[str]) -> str:
    """Return the oldest and the newest of some versions, without what comes after the minor one.

    >>> ends(["3.14.10", "3.9.1", "3.12.1"])
    '3.9 to 3.14'
    """
    numbers = sorted({tuple(int(part) for part in version.split(".")[:2]) for version in versions})
    return " to ".join(f"{major}.{minor}" for major, minor in dict.fromkeys([*numbers[:1], *numbers[-1:]]))


def code(names: Iterable[str]) -> Iterator[nodes.Node]:
    """Write names with commas between them."""
    for at, name in enumerate(names):
        yield from [nodes.Text(", ")] * bool(at)
        yield nodes.literal("", name)


def link(text: str, label: str) -> nodes.Node:
    """Make a link to a label, which Sphinx resolves."""
    words = nodes.inline(text, text, classes=["std", "std-ref"])
    target = {"refdomain": "std", "reftype": "ref", "reftarget": label, "refexplicit": True, "refwarn": True}
    return addnodes.pending_xref("", words, **target)


class Versions(SphinxDirective):
    """What both directives share: the rows of the file, and an error with the page's line if they are missing."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Build the nodes."""
        path = root(self.env) / FILE
        self.env.note_dependency(str(path))
        rows = [Row(**row) for row in json.loads(path.read_text(encoding="utf-8")).values()]
        try:
            return [self.build(rows, self.arguments[0])]
        except FileError as error:
            return [self.state.document.reporter.error(f"{self.name}: {error}", line=self.lineno)]

    def build(self, rows: list[Row], name: str) -> nodes.Node:
        """Build the node."""
        raise NotImplementedError


class Line(Versions):
    """The line of a guide: the versions that run all of its programs, and what older ones don't run."""

    def build(self, rows: list[Row], name: str) -> nodes.Node:
        """Build the paragraph."""
        packages = dict.fromkeys(row.package for row in rows if row.of(name))
        if not packages:
            raise FileError(f"no program of examples/{name} is in {FILE}")
        line = nodes.paragraph("", "", nodes.strong("", "Versions:"), nodes.Text(" "))
        for package in packages:
            line += [*self.package([row for row in rows if row.package == package], name), nodes.Text("; ")]
        line += nodes.Text(f"Python {ends(row.versions['python'] for row in rows if row.of(name))}. ")
        line += [link("Which programs run with which versions", "versions"), nodes.Text(".")]
        return line

    @staticmethod
    def package(rows: list[Row], name: str) -> Iterator[nodes.Node]:
        """Write which versions of a package run all programs, and in brackets what the others don't run."""
        wrong = {row.version: [PurePosixPath(x).name for x, bad in row.of(name).items() if bad] for row in rows}
        yield nodes.Text(
            f"{title(rows[0].package)} {ends(version for version, programs in wrong.items() if not programs)}"
        )
        some: dict[tuple[str, ...], list[str]] = {}
        for version in (version for version in wrong if wrong[version]):
            some.setdefault(tuple(wrong[version]), []).append(version)
        for programs, versions in some.items():
            yield nodes.Text(f"{' (' if programs == next(iter(some)) else '; '}{ends(versions)}: ")
            if len(programs) > FEW:
                count = len(rows[0].of(name))
                yield nodes.Text(f"{count - len(programs)} of {count} programs")
            else:
                yield nodes.Text("all but ")
                yield from code(programs)
        if some:
            yield nodes.Text(")")


class Table(Versions):
    """The table of one package, with a row for each version, and below it the list of what they don't run."""

    def build(self, rows: list[Row], name: str) -> nodes.Node:
        """Build both."""
        chosen = [row for row in rows if row.package == name]
        if not chosen:
            raise FileError(f"no row of {FILE} is about {name!r}, only {', '.join(dict.fromkeys(r[0] for r in rows))}")
        group = nodes.tgroup("", *(nodes.colspec(colwidth=width) for width in (20, 60, 20)), cols=3)
        group += nodes.thead("", self.row(title(name), "with", "programs that run"))
        group += nodes.tbody("", *(self.row(*self.cells(row)) for row in chosen))
        wrong = nodes.bullet_list("", *(item for row in chosen for item in self.wrong(row)), bullet="-")
        return nodes.container("", nodes.table("", group), *([wrong] if len(wrong) else []), is_div=True)

    @staticmethod
    def cells(row: Row) -> Iterator[str]:
        """Write the cells of a row."""
        yield row.versions[row.package]
        names = [*NAMES, "orbax-checkpoint"]
        others = [name for name in names if name in row.versions and name != row.package]
        yield ", ".join(f"{title(name)} {row.versions[name]}" for name in others)
        yield f"{sum(not wrong for wrong in row.programs.values())} of {len(row.programs)}"

    @staticmethod
    def wrong(row: Row) -> Iterator[nodes.list_item]:
        """Write an item for each reason why programs don't run."""
        reasons: dict[str, list[str]] = {}
        for program, wrong in row.programs.items():
            short = re.sub(r"^\S+Error: (?=needs )|(?<=\d)\+\w+$", "", wrong)
            reasons.setdefault(short, []).append(program)
        version = row.versions[row.package]
        for reason, programs in ((reason, programs) for reason, programs in reasons.items() if reason):
            text = [nodes.strong("", version), nodes.Text(" doesn't run "), *code(programs), nodes.Text(": ")]
            yield nodes.list_item("", nodes.paragraph("", "", *text, nodes.literal("", reason)))

    @staticmethod
    def row(*cells: str) -> nodes.row:
        """Make a row of text."""
        return nodes.row("", *(nodes.entry("", nodes.paragraph("", cell)) for cell in cells))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("versions", Line)
    app.add_directive("versions-table", Table)
    return {"parallel_read_safe": True}
