"""The directive `code-file`: a file of the repository, whole or in part, with its name, a download and its record."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from recorded import badge
from repository import FileError, PageFacts, RepositoryDirective, download, language, line, root
from sphinx.pycode import ModuleAnalyzer
from sphinx.util import parselinenos

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

INCLUDED = PageFacts("srunbook_included")
"""Files that each page shows."""


def section(text: str, name: str) -> str:
    """Cut out what stands between the lines `# [name]` and `# [/name]`.

    Raises:
        FileError: One of the two lines is missing, or stands there more than once.
    """
    lines = text.splitlines(keepends=True)
    places = []
    for marker in (f"[{name}]", f"[/{name}]"):
        found = [number for number, content in enumerate(lines) if content.strip().lstrip("#/ ") == marker]
        if len(found) != 1:
            known = sorted(set(re.findall(r"^\s*(?:#|//)\s*\[(\w[\w -]*)\]\s*$", text, re.MULTILINE)))
            raise FileError(
                f"the line '# {marker}' occurs {len(found)} times, not once; sections: {', '.join(known) or 'none'}"
            )
        places.append(found[0])
    return textwrap.dedent("".join(lines[places[0] + 1 : places[1]]))


def pyobject(path: Path, name: str) -> str:
    """Cut out a function or class of a Python file by its name.

    Raises:
        FileError: The file has no such object.
    """
    tags = ModuleAnalyzer.for_file(str(path), "").find_tags()
    if name not in tags:
        raise FileError(f"no object {name!r}; the file has {', '.join(sorted(tags))}")
    _, start, end = tags[name]
    return textwrap.dedent("".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[start - 1 : end]))


def caption(env: BuildEnvironment, path: Path, name: str, part: str = "") -> nodes.paragraph:
    """Make the line above a file: its name, which part of it is shown, and a download.

    Args:
        env: The build environment, in the middle of reading a page.
        path: The file.
        name: Its path from the root of the repository.
        part: What follows the name.
    """
    shown = nodes.literal(name, name, classes=["code-file-name"])
    return line(
        nodes.inline("", "", shown, nodes.inline(part, part, classes=["code-file-part"])),
        nodes.inline("", "", download(env, path, "Download"), classes=["code-file-download"]),
        classes=["code-file-caption"],
    )


class CodeFile(RepositoryDirective):
    """Shows a file, or the part of it that an option names."""

    option_spec: ClassVar = {
        "pyobject": directives.unchanged_required,
        "section": directives.unchanged_required,
        "emphasize-text": directives.unchanged_required,
        "emphasize-lines": directives.unchanged_required,
    }

    def build(self, path: Path) -> Iterator[nodes.Node]:
        """Build caption, block and badge."""
        name = path.relative_to(root(self.env)).as_posix()
        text, part = path.read_text(encoding="utf-8"), ""
        if "pyobject" in self.options:
            text, part = pyobject(path, self.options["pyobject"]), f", {self.options['pyobject']}"
        elif "section" in self.options:
            text, part = section(text, self.options["section"]), f", {self.options['section']}"
        if not text.strip():
            raise FileError(f"{name}{part} is empty")

        INCLUDED.add(self.env, name)
        box = nodes.container(classes=["code-file"], is_div=True)
        box += caption(self.env, path, name, part)
        block = nodes.literal_block(text, text, language=language(path), real_file=name)
        lines = self.emphasized(text)
        if lines:
            block["highlight_args"] = {"hl_lines": lines}
        self.set_source_info(block)
        box += block
        if path.suffix == ".sbatch" and not part:
            box += badge(self.env, path)
        yield box

    def emphasized(self, text: str) -> list[int]:
        """Return the numbers, from 1, of the lines to emphasize."""
        lines = text.splitlines()
        chosen = set()
        if "emphasize-text" in self.options:
            wanted = self.options["emphasize-text"]
            chosen = {number for number, content in enumerate(lines, 1) if wanted in content}
            if not chosen:
                raise FileError(f"no line contains the text to emphasize, {wanted!r}")
        if "emphasize-lines" in self.options:
            chosen |= {number + 1 for number in parselinenos(self.options["emphasize-lines"], len(lines))}
            if max(chosen) > len(lines):
                raise FileError(f"line {max(chosen)} cannot be emphasized: there are {len(lines)}")
        return sorted(chosen)


def setup(app: Sphinx) -> dict[str, bool | int]:
    """Register the directive."""
    app.setup_extension("repository")
    app.add_directive("code-file", CodeFile)
    INCLUDED.connect(app)
    version = 2  # of the blocks in doctrees kept from an earlier build
    return {"parallel_read_safe": False, "parallel_write_safe": True, "env_version": version}
