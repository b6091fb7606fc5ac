"""The directive `script-builder`: a form that writes a job script; without JavaScript, what one command prints.

Its content is that command. The form begins with the same values, and works from `srunbook.generate.rules`.
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import click
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from srunbook import generate
from srunbook.cli.generate import command

if TYPE_CHECKING:
    from sphinx.application import Sphinx

CLASS = "script-builder"


def values_of(words: list[str]) -> dict[str, Any]:
    """Return the values of a job that the options of `srunbook generate` name.

    Raises:
        click.UsageError: The command does not know an option.
        ValueError: It knows no field of that name.
    """
    given = command.make_context("generate", list(words)).params
    values = {name: given[name] for name in ("profile", "cluster", "framework", "script") if given[name] is not None}
    for layer in generate.settings(given["changes"]):
        for name, value in layer.values.items():
            values[name] = {**values.get(name, {}), **value} if isinstance(value, dict) else value
    return {**values, "arguments": list(given["arguments"])} if given["arguments"] else values


def data(name: str, value: Any) -> nodes.raw:
    """Put a value into the page, for its scripts."""
    text = json.dumps(value).replace("<", "\\u003c")
    html = f'<script type="application/json" class="{CLASS}-{name}">{text}</script>'
    return nodes.raw("", html, format="html", rendered_job=name)


class ScriptBuilder(SphinxDirective):
    """Shows a command and the script that it prints, which JavaScript replaces with a form."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Build both, or report what is wrong with the command."""
        line = " ".join(self.content).strip()
        try:
            program, room, *words = shlex.split(line)
            if (program, room) != ("srunbook", "generate"):
                return [self.error(f"{line!r} is not a command srunbook generate")]
            values = values_of(words)
            job = generate.specify(generate.Layer("the page", values))
            text = generate.render(job.specification, made_by=shlex.join([program, room, *words]))
        except (click.UsageError, ValueError) as error:
            return [self.error(str(error))]
        plain = nodes.container(classes=[f"{CLASS}-plain"], is_div=True)
        plain += nodes.literal_block("", f"$ {line}", language="console")
        plain += nodes.literal_block("", text, language="bash", rendered_job="script")
        box = nodes.container(classes=[CLASS], is_div=True)
        box += [plain, data("start", values), data("rules", generate.rules())]
        return [box]

    def error(self, text: str) -> nodes.system_message:
        """Report a problem with its line."""
        return self.state.document.reporter.error(f"{self.name}: {text}", line=self.lineno)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive(CLASS, ScriptBuilder)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
