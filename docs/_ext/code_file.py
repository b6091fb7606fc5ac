"""The directive `code-file`: a file of the repository, whole or in part, with its name, a download and its record.

A job script's `#SBATCH` lines are coloured as what they are to Slurm: directives, not comments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from pygments.lexer import bygroups, inherit
from pygments.lexers.shell import BashLexer
from pygments.token import Comment, Keyword, Name, Operator, String, Text
from recorded import badge
from repository import FileError, RepositoryDirective, download, language, line, note, root
from sphinx.directives.code import LiteralIncludeReader
from sphinx.util import parselinenos

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

INCLUDED = "srunbook-included"
"""The fact that names the files which a page shows."""


class JobScriptLexer(BashLexer):  # type: ignore[misc]
    """Bash whose directives to Slurm are coloured: the option, its value, and a comment behind it.

    >>> [value for kind, value in JobScriptLexer().get_tokens("#SBATCH --nodes=2  # EDIT") if value.strip()]
    ['#SBATCH', '--nodes', '=', '2', '# EDIT']
    """

    name = "Slurm job script"
    aliases: ClassVar = ["sbatch"]
    filenames: ClassVar = ["*.sbatch"]
    priority = 0
    tokens: ClassVar = {
        "root": [
            (
                r"^(#SBATCH)([ \t]+)(--?[\w-]+)(?:(=|[ \t]+)([^\s#]\S*))?([ \t]*)(#.*)?$",
                bygroups(Keyword, Text, Name.Attribute, Operator, String, Text, Comment.Single),
            ),
            inherit,
        ]
    }


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
        " ",
        nodes.inline("", "", download(env, path, "Download"), classes=["code-file-download"]),
        classes=["code-file-caption"],
    )


class CodeFile(RepositoryDirective):
    """Shows a file or a part of it.

    A part is an object of Python, what lies between `# [name]` and `# [/name]`, or the lines from the first that
    contains one text to the next that contains another.
    """

    option_spec: ClassVar = {
        "pyobject": directives.unchanged_required,
        "section": directives.unchanged_required,
        "start-at": directives.unchanged_required,
        "end-at": directives.unchanged_required,
        "emphasize-text": directives.unchanged_required,
        "emphasize-lines": directives.unchanged_required,
    }

    def build(self, path: Path) -> Iterator[nodes.Node]:
        """Build caption, block and badge."""
        name = path.relative_to(root(self.env)).as_posix()
        note(self.env, INCLUDED, name)
        wanted: dict[str, Any] = {}
        part = ""
        if "pyobject" in self.options:
            part = self.options["pyobject"]
            wanted = {"pyobject": part, "dedent": None}
        elif "section" in self.options:
            part = self.options["section"]
            wanted = {"start-after": f"[{part}]", "end-before": f"[/{part}]", "dedent": None}
        elif "start-at" in self.options:
            part = "in part"
            start = self.options["start-at"]
            wanted = {"start-at": start, "end-at": self.options.get("end-at", start), "dedent": None}
        text, _ = LiteralIncludeReader(path, wanted, self.config).read()
        box = nodes.container(classes=["code-file"], is_div=True)
        box += caption(self.env, path, name, f", {part}" if part else "")
        block = nodes.literal_block(text, text, language=language(path), real_file=name)
        lines = self.emphasized(text.splitlines())
        if lines:
            block["highlight_args"] = {"hl_lines": lines}
        self.set_source_info(block)
        box += block
        if path.suffix == ".sbatch" and not part:
            box += badge(self.env, path)
        yield box

    def emphasized(self, lines: list[str]) -> list[int]:
        """Return the numbers, from 1, of the lines to emphasize."""
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
    app.add_lexer("sbatch", JobScriptLexer)
    version = 3  # of the blocks in doctrees kept from an earlier build
    return {"parallel_read_safe": False, "parallel_write_safe": True, "env_version": version}
