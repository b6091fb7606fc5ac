"""What every directive here needs to know about the repository: its root, its files, and how to point at one."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

SUFFIXES = {
    ".py": "python",
    ".sbatch": "sbatch",
    ".sh": "bash",
    ".json": "json",
    ".toml": "toml",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".ini": "ini",
    ".cfg": "ini",
    ".cpp": "cpp",
}
"""Language in which a file is coloured, by its suffix; all others are plain text."""


class FileError(ValueError):
    """A page names a file, section or object that is not there; the message says what is."""


def root(env: BuildEnvironment) -> Path:
    """Return the root of the repository: `repository_root`, from the folder of the pages."""
    return Path(os.path.normpath(Path(env.srcdir, env.config.repository_root)))


def find(env: BuildEnvironment, name: str) -> Path:
    """Find a file by its path from the root of the repository.

    Raises:
        FileError: The file does not exist, or does not lie in one of `repository_folders`.
    """
    path, shown = PurePosixPath(name), env.config.repository_folders
    if path.is_absolute() or ".." in path.parts or path.parts[:1] not in {(folder,) for folder in shown}:
        raise FileError(f"{name!r} is no path from the root of the repository into {', '.join(shown)}")
    found = root(env) / path
    if not found.is_file():
        siblings = sorted(entry.name for entry in found.parent.glob("*") if entry.is_file())
        raise FileError(f"no file {name!r}; {path.parent} has {', '.join(siblings) or 'no files'}")
    return found


def language(path: Path) -> str:
    """Return the language in which a file is coloured."""
    return SUFFIXES.get(path.suffix, "text")


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def download(env: BuildEnvironment, path: Path, text: str) -> nodes.Node:
    """Make a link that downloads a file of the repository.

    Args:
        env: The build environment, in the middle of reading a page.
        path: The file.
        text: What the link says.
    """
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

    def run(self) -> list[nodes.Node]:
        """Build the nodes, or reports what is wrong with the argument or an option."""
        try:
            path = find(self.env, self.arguments[0])
            self.env.note_dependency(str(path))
            return list(self.build(path))
        except ValueError as error:
            return [self.state.document.reporter.error(f"{self.name}: {error}", line=self.lineno)]

    def build(self, path: Path) -> Iterator[nodes.Node]:
        """Build the nodes for one file."""
        raise NotImplementedError


class PageFacts:
    """Facts of each page that the environment keeps between builds and forgets when the page is read again.

    Args:
        name: Attribute of the environment that holds them: a dictionary from page to a list of strings.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def of(self, env: BuildEnvironment) -> dict[str, list[str]]:
        """Return all facts, by page."""
        if not hasattr(env, self.name):
            setattr(env, self.name, {})
        facts: dict[str, list[str]] = getattr(env, self.name)
        return facts

    def add(self, env: BuildEnvironment, fact: str) -> None:
        """Add a fact to the page that is being read."""
        self.of(env).setdefault(env.docname, []).append(fact)

    def connect(self, app: Sphinx) -> None:
        """Forget the facts of pages that are read again or are gone."""
        app.connect("env-purge-doc", lambda _app, env, docname: self.of(env).pop(docname, None))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register where the repository is, and which of its folders hold files that pages show."""
    app.setup_extension("job_scripts")
    app.add_config_value("repository_root", "..", "env", str)
    app.add_config_value("repository_folders", [], "env", (list, tuple))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
