"""The directive `code-file`: a file of the repository, whole or in part, with its name, a download and its record.

A job script's `#SBATCH` lines are coloured as what they are to Slurm: directives, not comments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from pygments.lexer import bygroups, inherit
from pygments.lexers.shell import BashLexer
from pygments.token import Comment, Keyword, Name, Operator, String, Text
from recorded import badge
from repository import LANGUAGES, FileError, RepositoryDirective, download, line, note, root
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


def caption(env: BuildEnvironment, name: str, *part: str | nodes.Node) -> nodes.paragraph:
    """Make the line above a file: its path from the root, which part of it is shown, and a download."""
    texts = [nodes.Text(piece) if isinstance(piece, str) else piece for piece in part]
    shown = nodes.literal(name, name, classes=["code-file-name"])
    return line(
        nodes.inline("", "", shown, nodes.inline("", "", *texts, classes=["code-file-part"])),
        " ",
        nodes.inline("", "", download(env, root(env) / name, "Download"), classes=["code-file-download"]),
        classes=["code-file-caption"],
    )


class CodeFile(RepositoryDirective):
    """Shows a file or a part of it.

    A part is an object of Python, what lies between `# [name]` and `# [/name]`, or the lines from the first that
    contains one text to the next that contains another.
    """

    option_spec: ClassVar = dict.fromkeys(
        ("pyobject", "section", "start-at", "end-at", "emphasize-text", "emphasize-lines"),
        directives.unchanged_required,
    )

    def build(self, path: Path) -> Iterator[nodes.Node]:
        """Build caption, block and badge."""
        name = self.arguments[0]
        note(self.env, INCLUDED, name)
        part = self.options.get("pyobject") or self.options.get("section") or ""
        wanted = {**self.options, "dedent": None}
        if "section" in wanted:
            wanted |= {"start-after": f"[{part}]", "end-before": f"[/{part}]"}
        elif "start-at" in wanted:
            part = "in part"
            wanted.setdefault("end-at", wanted["start-at"])
        text, _ = LiteralIncludeReader(path, wanted, self.config).read()
        block = nodes.literal_block(text, text, language=LANGUAGES.get(path.suffix, "text"), real_file=name)
        lines = self.emphasized(text.splitlines())
        if lines:
            block["highlight_args"] = {"hl_lines": lines}
        self.set_source_info(block)
        badges = [badge(self.env, path)] if path.suffix == ".sbatch" and not part else []
        head = caption(self.env, name, *([f", {part}"] if part else []))
        yield nodes.container("", head, block, *badges, classes=["code-file"], is_div=True)

    def emphasized(self, lines: list[str]) -> list[int]:
        """Return the numbers, from 1, of the lines to emphasize."""
        chosen = set()
        if wanted := self.options.get("emphasize-text"):
            chosen = {number for number, content in enumerate(lines, 1) if wanted in content}
            if not chosen:
                raise FileError(f"no line contains the text to emphasize, {wanted!r}")
        if wanted := self.options.get("emphasize-lines"):
            chosen |= {number + 1 for number in parselinenos(wanted, len(lines))}
            if max(chosen) > len(lines):
                raise FileError(f"line {max(chosen)} cannot be emphasized: there are {len(lines)}")
        return sorted(chosen)


def setup(app: Sphinx) -> dict[str, int]:
    """Register the directive."""
    app.setup_extension("repository")
    app.add_directive("code-file", CodeFile)
    app.add_lexer("sbatch", JobScriptLexer)
    return {"env_version": 3}  # of the blocks in doctrees kept from an earlier build
