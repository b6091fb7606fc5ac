"""Rejects every code block that is not (part of) a real file.

Every page may show what `code-file`, `code-diff` and `recorded` make, the forms of a message, and one-line commands.
Three kinds of page may show more, and each only what it was made from: a gallery page its example and what it printed,
an API page the docstrings of `src/`, the page of the command its own help. HTML comes from our directives and the
gallery alone. A one-line command may only have options that exist, and name files of the repository that exist.
"""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click
from docutils import nodes
from repository import FOLDERS, root
from sphinx.util import logging

from srunbook.cli import main

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

logger = logging.getLogger(__name__)

API, COMMAND = "reference/api", "tools/command"
"""How the names of the pages about the library and about the command begin."""

OURS = ("real_file", "recording", "front_matter", "drawing", "rendered_job")
"""Attributes of the blocks that our directives make."""


def squeezed(text: str) -> str:
    """Join the words of a text with single spaces: indentation and line breaks are the page's business."""
    return " ".join(text.split())


@cache
def docstrings(source: Path) -> str:
    """Return all docstrings of the Python files in a folder, squeezed."""
    files = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(source.rglob("*.py"))]
    statements = (node for file in files for node in ast.walk(file) if isinstance(node, ast.Expr))
    return "\n".join(squeezed(str(node.value.value)) for node in statements if isinstance(node.value, ast.Constant))


def gallery_code(env: BuildEnvironment, page: str) -> set[str]:
    """Return the code blocks of the example behind a gallery page."""
    from sphinx_gallery.py_source_parser import split_code_and_text_blocks

    example = root(env) / "examples" / Path(page).relative_to("gallery").with_suffix(".py")
    return {block.content.strip("\n") for block in split_code_and_text_blocks(str(example))[1] if block.type == "code"}


def allowed(env: BuildEnvironment, page: str, block: nodes.Element) -> bool:
    """Return whether a code block may stand on a page."""
    text = block.astext()
    if any(name in block for name in OURS) or (block.get("language") == "console" and one_command(text)):
        return True
    if page.startswith("gallery/"):
        printed = "sphx-glr-script-out" in block["classes"]
        return isinstance(block, nodes.raw) or printed or text.strip("\n") in gallery_code(env, page)
    if page.startswith(API):
        return squeezed(text) in docstrings(root(env) / "src")
    return page.startswith(COMMAND) and str(block.source).startswith("srunbook")  # what sphinx-click wrote


def one_command(text: str) -> bool:
    """Tell whether a console block is one command; a backslash may carry it on to the next line."""
    return re.fullmatch(r"\$ \S[^\n]*(?:\\\n {4}\S[^\n]*)*\n?", text) is not None


def check(app: Sphinx, doctree: nodes.document) -> None:
    """Warn about each block of a page that is no real file, and about each command that would not work."""
    page, blocks = app.env.docname, [*doctree.findall(nodes.literal_block), *doctree.findall(nodes.doctest_block)]
    for block in [*blocks, *(raw for raw in doctree.findall(nodes.raw) if "html" in raw.get("format", ""))]:
        text = block.astext().strip()
        problem = None
        if not allowed(app.env, page, block):
            problem = (
                f"code block that is no real file, beginning {text.partition(chr(10))[0].strip()!r}: put the code into "
                "a file under examples/, slurm/ or src/ and show it with the directive code-file"
            )
        elif isinstance(block, nodes.literal_block) and block.get("language") == "console":
            wrong = wrong_command(text, root(app.env))
            problem = f"command {text!r}: {wrong}" if wrong else None
        if problem:
            logger.warning("%s: %s", page, problem, location=block, type="real_files")


def wrong_command(text: str, root: Path) -> str | None:
    """Say what is wrong with a command, with or without its prompt, or return None where nothing is known to be."""
    try:
        words = shlex.split(text.removeprefix("$ ").replace("\\\n", ""))
    except ValueError as error:
        return str(error)
    for word in words:
        if "/" in word and word.split("/")[0] in FOLDERS and not (root / word).exists():
            return f"there is no {word}"
    while words and (words[0] == "sudo" or re.fullmatch(r"\w+=.*", words[0])):
        words = words[1:]
    return wrong_options(words[1:]) if words[:1] == ["srunbook"] else None


def wrong_options(words: list[str]) -> str | None:
    """Say what our command would not take of its arguments; nothing is run."""
    command: click.Command = main
    context = click.Context(command, info_name="srunbook", **command.context_settings)
    try:
        while True:
            _, rest, _ = command.make_parser(context).parse_args(list(words))
            if not isinstance(command, click.Group) or not rest:
                return None
            name, subcommand, words = command.resolve_command(context, rest)
            command = subcommand or command
            context = click.Context(command, info_name=name, parent=context, **command.context_settings)
    except click.UsageError as error:
        return error.format_message()


def setup(app: Sphinx) -> None:
    """Connect the check."""
    app.connect("doctree-read", check)
