"""Rejects every code block that is not (part of) a real file, and reports which files the pages show.

Every page may show what `code-file`, `code-diff` and `recorded` make, the forms of a message, and one-line commands.
Three kinds of page may show more, and each only what it was made from: a gallery page its example and what it printed,
an API page the docstrings of `src/`, the page of the command its own help. HTML comes from our directives and the
gallery alone. A one-line command may only have options that exist, and name files of the repository that exist.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from code_file import INCLUDED
from docutils import nodes
from repository import noted, root
from sphinx.util import logging

from srunbook._files import write_whole
from srunbook.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

logger = logging.getLogger(__name__)

API, COMMAND = "reference/api", "tools/command"
"""How the names of the pages about the library begin, and the page about the command."""

FOLDERS = ("bench", "docs", "examples", "scripts", "slurm", "src", "tests")
"""A command that names a file in one of these means a file that exists."""

OURS = ("real_file", "recording", "front_matter", "drawing", "rendered_job")
"""Attributes of the blocks that our directives make."""


def squeezed(text: str) -> str:
    r"""Join the words of a text with single spaces: indentation and line breaks are the page's business.

    >>> squeezed("  a\n    b")
    'a b'
    """
    return " ".join(text.split())


@cache
def docstrings(source: Path) -> str:
    """Return all docstrings of the Python files in a folder, squeezed."""
    found = []
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                found.append(squeezed(str(node.value.value)))
    return "\n".join(found)


@cache
def command_help() -> str:
    """Return the help of the command and of its subcommands, squeezed."""

    def collect(command: click.Command, context: click.Context) -> Iterator[str]:
        yield squeezed(command.get_help(context))
        for name in command.list_commands(context) if isinstance(command, click.Group) else ():
            subcommand = command.get_command(context, name)  # type: ignore[attr-defined]
            yield from collect(subcommand, click.Context(subcommand, info_name=name, parent=context))

    return "\n".join(collect(main, click.Context(main, info_name="srunbook")))


def gallery_code(env: BuildEnvironment, page: str) -> set[str]:
    """Return the code blocks of the example behind a gallery page."""
    from sphinx_gallery.py_source_parser import split_code_and_text_blocks

    example = root(env) / "examples" / Path(page).relative_to("gallery").with_suffix(".py")
    if not example.is_file():
        return set()
    return {block.content.strip("\n") for block in split_code_and_text_blocks(str(example))[1] if block.type == "code"}


def is_printed(block: nodes.Node) -> bool:
    """Return whether sphinx-gallery captured a block as the output of an example."""
    at: Any = block
    while at is not None and "sphx-glr-script-out" not in at.get("classes", []):
        at = at.parent
    return at is not None


def allowed(env: BuildEnvironment, page: str, block: nodes.Element) -> bool:
    """Return whether a code block may stand on a page."""
    text, gallery = block.astext(), page.startswith("gallery/")
    if any(name in block for name in OURS) or (gallery and (isinstance(block, nodes.raw) or is_printed(block))):
        return True
    if isinstance(block, nodes.raw):
        return False
    if block.get("language") == "console" and one_command(text):
        return True
    if gallery:
        return text.strip("\n") in gallery_code(env, page)
    if page.startswith(API):
        return squeezed(text) in docstrings(root(env) / "src")
    return page == COMMAND and squeezed(text) in command_help()


def one_command(text: str) -> bool:
    r"""Tell whether a console block is one command; a backslash may carry it on to the next line.

    >>> one_command("$ nox -s docs"), one_command("$ a\n$ b"), one_command("a")
    (True, False, False)
    >>> one_command("$ a \\\n    b"), one_command("$ a \\\n$ b"), one_command("$ a\n    b")
    (True, False, False)
    """
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
            name, found, words = command.resolve_command(context, rest)
            command = found or command
            context = click.Context(command, info_name=name, parent=context, **command.context_settings)
    except click.UsageError as error:
        return error.format_message()


def report_path(app: Sphinx) -> Path:
    """Return where a build reports which files its pages show: beside the folder of the site."""
    return Path(app.outdir).with_name(f"{Path(app.outdir).name}-included.json")


def report(app: Sphinx, exception: Exception | None) -> None:
    """Write which pages show which file; the report of a build that failed is removed, and marks it as unfinished."""
    report_path(app).unlink(missing_ok=True)
    if exception is not None or app.statuscode or (app._warncount and app._fail_on_warnings):
        return
    pages: dict[str, set[str]] = {}
    for page, files in noted(app.env, INCLUDED).items():
        for name in files:
            pages.setdefault(name, set()).add(page)
    for page in app.env.found_docs:
        if page.startswith("gallery/") and not page.endswith("index"):
            pages.setdefault(f"examples/{page.removeprefix('gallery/')}.py", set()).add(page)
    text = json.dumps({name: sorted(pages[name]) for name in sorted(pages)}, indent=2)
    write_whole(report_path(app), text + "\n")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the check and the report."""
    app.setup_extension("code_file")
    app.connect("doctree-read", check)
    app.connect("build-finished", report)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
