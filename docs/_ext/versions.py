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
        for at, package in enumerate(packages):
            line += [nodes.Text("; ")] * bool(at)
            line += self.package([row for row in rows if row.package == package], name)
        line += [nodes.Text(". "), link("Which programs run with which versions", "versions"), nodes.Text(".")]
        return line

    @staticmethod
    def package(rows: list[Row], name: str) -> Iterator[nodes.Node]:
        """Write what ran with one package; its rows begin with the oldest version."""
        wrong = {row.version: [PurePosixPath(x).name for x, bad in row.of(name).items() if bad] for row in rows}
        count = {row.version: len(row.of(name)) for row in rows}
        good = [version for version, programs in wrong.items() if not programs]
        yield nodes.Text(f"{title(rows[0].package)} {' to '.join(dict.fromkeys([*good[:1], *good[-1:]])) or 'none'}")
        for version, programs in ((version, wrong[version]) for version in wrong if wrong[version]):
            if len(programs) > FEW:
                yield nodes.Text(f", {version} for {count[version] - len(programs)} of {count[version]} programs")
            else:
                yield nodes.Text(f", {version} for all but ")
                yield from code(programs)


class Table(Versions):
    """The table of one package: a row for each version, with what it doesn't run."""

    def build(self, rows: list[Row], name: str) -> nodes.Node:
        """Build the table."""
        chosen = [row for row in rows if row.package == name]
        if not chosen:
            raise FileError(f"no row of {FILE} is about {name!r}, only {', '.join(dict.fromkeys(r[0] for r in rows))}")
        table, group = nodes.table(classes=["versions"]), nodes.tgroup(cols=4)
        group += [nodes.colspec(colwidth=width) for width in (12, 24, 12, 52)]
        group += nodes.thead("", self.row(title(name), "With", "Programs", "What doesn't run"))
        group += nodes.tbody("", *(self.row(*self.cells(row)) for row in chosen))
        table += group
        return table

    @staticmethod
    def cells(row: Row) -> Iterator[str | nodes.Node]:
        """Write the cells of a row."""
        others = [f"{title(other)} {row.versions[other]}" for other in NAMES if other in row.versions]
        others += [f"Orbax {row.versions['orbax-checkpoint']}"] if "orbax-checkpoint" in row.versions else []
        yield row.versions[row.package]
        yield ", ".join(other for other in others if not other.startswith(f"{title(row.package)} "))
        yield f"{sum(not wrong for wrong in row.programs.values())} of {len(row.programs)}"
        reasons: dict[str, list[str]] = {}
        for program, wrong in row.programs.items():
            reasons.setdefault(re.sub(r"^\S+Error: (?=needs )", "", wrong), []).append(program)
        cell = nodes.bullet_list(bullet="-")
        for reason, programs in ((reason, programs) for reason, programs in reasons.items() if reason):
            said = [nodes.Text(": "), nodes.literal("", reason)]
            cell += nodes.list_item("", nodes.paragraph("", "", *code(programs), *said))
        yield cell if len(cell) else ""

    @staticmethod
    def row(*cells: str | nodes.Node) -> nodes.row:
        """Make a row of text and nodes."""
        made = [nodes.paragraph("", cell) if isinstance(cell, str) else cell for cell in cells]
        return nodes.row("", *(nodes.entry("", cell) for cell in made))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("versions", Line)
    app.add_directive("versions-table", Table)
    return {"parallel_read_safe": True}
