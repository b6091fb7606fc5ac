"""What directives here share: the root and the files of the repository, and how a page points at one."""

from __future__ import annotations

import html
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment
    from sphinx.writers.html5 import HTML5Translator

T = TypeVar("T")

LANGUAGES = {
    ".py": "python",
    ".sbatch": "sbatch",
    ".sh": "bash",
    ".json": "json",
    ".yaml": "yaml",
}
"""Language in which a file is coloured, by its suffix; all others are plain text."""

CAPTIONS = {"code-file-caption", "recorded-caption", "badge-line"}
"""Classes of the lines above and below files and their outputs."""

FOLDERS = ("bench", "docs", "examples", "scripts", "slurm", "src", "tests")
"""Folders of the repository that hold files which pages show or commands name."""


class FileError(ValueError):
    """A page names a file, section or object that is not there; the message says what is."""


def root(env: BuildEnvironment) -> Path:
    """Return the root of the repository, which holds the folder of the pages."""
    return Path(env.srcdir).parent


def find(env: BuildEnvironment, name: str) -> Path:
    """Find a file in one of `FOLDERS` by its path from the root of the repository."""
    path = root(env) / name
    if ".." in path.parts or name.split("/")[0] not in FOLDERS:
        raise FileError(f"{name!r} is no path from the root of the repository into {', '.join(FOLDERS)}")
    if not path.is_file():
        siblings = sorted(entry.name for entry in path.parent.glob("*") if entry.is_file())
        raise FileError(f"no file {name!r}; {name.rpartition('/')[0]} has {', '.join(siblings) or 'no files'}")
    return path


def known(values: Mapping[str, T], name: str, what: str) -> T:
    """Return the value of a name, or raise an error that lists the names there are."""
    if name not in values:
        raise FileError(f"no {what} {name!r}; there are {', '.join(values)}")
    return values[name]


def download(env: BuildEnvironment, path: Path, text: str) -> nodes.Node:
    """Make a link that downloads a file of the repository."""
    target = "/" + Path(os.path.relpath(path, env.srcdir)).as_posix()
    reference = addnodes.download_reference("", "", reftarget=target, refdoc=env.docname, refwarn=True)
    reference += nodes.inline(text, text, classes=["download-text"])
    return reference


def line(*parts: str | nodes.Node, classes: list[str]) -> nodes.paragraph:
    """Make a paragraph of text and nodes."""
    paragraph = nodes.paragraph(classes=classes)
    for part in parts:
        paragraph += nodes.Text(part) if isinstance(part, str) else part
    return paragraph


class RepositoryDirective(SphinxDirective):
    """A directive whose argument is a file of the repository; a wrong one becomes an error with the page's line."""

    required_arguments = 1
    final_argument_whitespace = True
    place = "{}"
    """Where the file is, given the argument."""

    needed: ClassVar[tuple[str, ...]] = ()
    """Options that have no default."""

    def run(self) -> list[nodes.Node]:
        """Build the nodes, or report what is wrong with the argument or an option."""
        try:
            for name in self.needed:
                if name not in self.options:
                    raise FileError(f"the option {name!r} is missing")
            path = find(self.env, self.place.format(self.arguments[0]))
            self.env.note_dependency(str(path))
            return list(self.build(path))
        except ValueError as error:
            return [self.state.document.reporter.error(f"{self.name}: {error}", line=self.lineno)]

    def build(self, path: Path) -> Iterator[nodes.Node]:
        """Build the nodes for one file."""
        raise NotImplementedError


def note(env: BuildEnvironment, fact: str, value: Any) -> None:
    """Add a value to a fact about the page that is being read, which is forgotten when the page is read again."""
    env.metadata[env.docname].setdefault(fact, []).append(value)


def noted(env: BuildEnvironment, fact: str) -> dict[str, Any]:
    """Return the values of a fact, by page."""
    return {page: facts[fact] for page, facts in env.metadata.items() if fact in facts}


def after_build(app: Sphinx, write: Callable[[Sphinx], None]) -> None:
    """Let a function write files into each site of HTML that was built."""

    def finished(app: Sphinx, error: Exception | None) -> None:
        if error is None and app.builder.format == "html":
            write(app)

    app.connect("build-finished", finished)


class disclosure(nodes.container):  # type: ignore[misc]  # noqa: N801 - docutils names nodes so
    """Content that one click opens; `summary` says what it is."""


def visit_disclosure(writer: HTML5Translator, node: disclosure) -> None:
    """Open a `details` element."""
    writer.body.append(writer.starttag(node, "details"))
    writer.body.append(f"<summary>{html.escape(node['summary'])}</summary>\n")


def depart_disclosure(writer: HTML5Translator, _node: disclosure) -> None:
    """Close it."""
    writer.body.append("</details>\n")


def setup(app: Sphinx) -> None:
    """Register the node."""
    app.add_node(disclosure, html=(visit_disclosure, depart_disclosure))
