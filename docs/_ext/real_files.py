"""Rejects every code block that is not (part of) a real file, and reports which files the pages show.

Every page may show what `code-file`, `code-diff` and `recorded` make, the forms of a message, and one-line commands.
Three kinds of page may show more, and each only what it was made from: a gallery page its example and what it printed,
an API page the docstrings of `src/`, the page of the command its own help. HTML comes from our directives alone.
"""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from code_file import INCLUDED
from consoles import click_command, wrong_command
from docutils import nodes
from repository import root
from sphinx.util import logging

from srunbook._files import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

logger = logging.getLogger(__name__)

ADVICE = "put the code into a file under examples/, slurm/ or src/ and show it with the directive code-file"

GALLERY_HTML = re.compile(
    r"""(\s|</div>|<div\ (?:id='sg-tag-list'\ class='sphx-glr-tag-list'></div>|class="sphx-glr-thumbnails">
    |class="sphx-glr-thumbcontainer"\ tooltip="[^"<>]*">|class="sphx-glr-thumbnail-title">[^<>]*</div>))*""",
    re.X,
)
"""The HTML that sphinx-gallery puts into its lists of examples."""


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
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                found.append(squeezed(node.value.value))
    return "\n".join(found)


@cache
def command_help(name: str, place: str) -> str:
    """Return the help of a click command, `module:object`, and of its subcommands, squeezed."""
    texts = []

    def collect(command: click.Command, context: click.Context) -> None:
        texts.append(squeezed(command.get_help(context)))
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                subcommand = command.get_command(context, name)
                if subcommand is not None:
                    collect(subcommand, click.Context(subcommand, info_name=name, parent=context))

    main = click_command(place)
    collect(main, click.Context(main, info_name=name))
    return "\n".join(texts)


def gallery_blocks(env: BuildEnvironment, page: str) -> tuple[set[str], bool]:
    """Read the example behind a gallery page.

    Returns:
        The text of its code blocks, and whether its prose keeps away from the markup of captured output.
    """
    from sphinx_gallery.py_source_parser import split_code_and_text_blocks

    example = root(env) / "examples" / Path(page).relative_to("gallery").with_suffix(".py")
    if not example.is_file():
        return set(), False
    blocks = split_code_and_text_blocks(str(example))[1]
    prose = "\n".join(block.content for block in blocks if block.type == "text")
    return {block.content.strip("\n") for block in blocks if block.type == "code"}, "sphx-glr" not in prose


def in_class(node: nodes.Node, name: str) -> bool:
    """Tell whether a node, or one that holds it, has a class."""
    at: Any = node
    while at is not None:
        if isinstance(at, nodes.Element) and name in at.get("classes", []):
            return True
        at = at.parent
    return False


def allowed(env: BuildEnvironment, page: str, block: nodes.Element) -> bool:
    """Tell whether a code block may stand on a page."""
    text = block.astext()
    if any(name in block for name in ("real_file", "recording", "front_matter", "drawing", "rendered_job")):
        return True
    if isinstance(block, nodes.raw):
        return page.startswith("gallery/") and GALLERY_HTML.fullmatch(text) is not None
    if isinstance(block, nodes.literal_block) and block.get("language") == "console" and one_command(text):
        return True
    if page.startswith("gallery/"):
        code, honest = gallery_blocks(env, page)
        return text.strip("\n") in code or (honest and in_class(block, "sphx-glr-script-out"))
    for beginning, folder in env.config.real_files_docstrings.items():
        if page.startswith(beginning):
            return squeezed(text) in docstrings(root(env) / folder)
    if page in env.config.real_files_help:
        name = env.config.real_files_help[page]
        return squeezed(text) in command_help(name, env.config.console_commands[name])
    return False


def one_command(text: str) -> bool:
    r"""Tell whether a console block is one command; a backslash may carry it on to the next line.

    >>> one_command("$ nox -s docs"), one_command("$ a\n$ b"), one_command("a")
    (True, False, False)
    >>> one_command("$ a \\\n    b"), one_command("$ a \\\n$ b"), one_command("$ a\n    b")
    (True, False, False)
    """
    return re.fullmatch(r"\$ \S[^\n]*(?:\\\n {4}\S[^\n]*)*\n?", text) is not None


def blocks(doctree: nodes.document) -> Iterator[nodes.Element]:
    """Yield all that a reader sees, or may see, as a block of code."""
    yield from doctree.findall(nodes.literal_block)
    yield from doctree.findall(nodes.doctest_block)
    yield from (raw for raw in doctree.findall(nodes.raw) if "html" in raw.get("format", ""))
    for lines in doctree.findall(nodes.line_block):
        if not isinstance(lines.parent, nodes.line_block) and any(lines.findall(nodes.literal)):
            yield lines


def check(app: Sphinx, doctree: nodes.document) -> None:
    """Warn about each block of a page that is no real file."""
    env = app.env
    for block in blocks(doctree):
        if not allowed(env, env.docname, block):
            first = next((content for content in block.astext().splitlines() if content.strip()), "")
            logger.warning(
                "%s: code block that is no real file, beginning %r: %s",
                env.docname,
                first.strip(),
                ADVICE,
                location=block,
                type="real_files",
            )
        elif isinstance(block, nodes.literal_block) and block.get("language") == "console":
            wrong = wrong_command(block.astext(), root(env), env.config.console_folders, env.config.console_commands)
            if wrong:
                logger.warning(
                    "%s: command %r: %s",
                    env.docname,
                    block.astext().strip(),
                    wrong,
                    location=block,
                    type="real_files",
                )


def report_path(app: Sphinx) -> Path:
    """Return where a build reports which files its pages show: beside the folder of the site."""
    return Path(app.outdir).with_name(f"{Path(app.outdir).name}-included.json")


def report(app: Sphinx, exception: Exception | None) -> None:
    """Write which pages show which file; the report of a build that failed is removed, and marks it as unfinished."""
    report_path(app).unlink(missing_ok=True)
    if exception is not None or app.statuscode or (app._warncount and app._fail_on_warnings):
        return
    pages: dict[str, set[str]] = {}
    for page, files in INCLUDED.of(app.env).items():
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
    app.add_config_value("console_folders", [], "env", (list, tuple))
    app.add_config_value("console_commands", {}, "env", dict)
    app.add_config_value("real_files_docstrings", {}, "env", dict)
    app.add_config_value("real_files_help", {}, "env", dict)
    app.connect("doctree-read", check)
    app.connect("build-finished", report)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
