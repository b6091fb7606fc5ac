"""The template's language: so little of Jinja that a page can render the same text in a browser.

- `{{ name }}` stands for a text;
- a line `{% if name %}`, `{% else %}` or `{% endif %}` by itself asks a truth value;
- a line `{# fields: reason #}` by itself explains the next line; the reason may have values, too.

Jinja2 renders the script. The renderer here reads the same template, knows which line came of which, and refuses
anything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template

Context = Mapping[str, str | bool]

TAG = re.compile(r"\{% (?:if (?P<name>[a-z_]+)|(?P<word>else|endif)) %\}")
NOTE = re.compile(r"\{# (?P<fields>[a-z_, ]+): (?P<reason>.*) #\}")
VALUE = re.compile(r"\{\{ ([a-z_]+) \}\}")


@dataclass(frozen=True)
class Line:
    """A line of the script.

    Args:
        text: The line.
        fields: Fields that it depends on; none for a line that is always the same.
        reason: Why it is there, or nothing for comments and empty lines.
        part: Where a value of several lines made it: which of them, from 0.
    """

    text: str
    fields: tuple[str, ...]
    reason: str
    part: int


@cache
def source() -> str:
    """Text of the template."""
    return files("srunbook.jobs").joinpath("job.sbatch.jinja").read_text(encoding="utf-8")


@cache
def template() -> Template:
    """The template, compiled; a name that has no value is an error."""
    environment = Environment(
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - this is no HTML: every value is quoted for bash before it comes here
    )
    return environment.from_string(source())


def rendered(context: Context) -> str:
    """The script, made by Jinja2."""
    return template().render(context)


def explained(text: str, context: Context) -> Iterator[Line]:
    """The lines of the script, each with its reason.

    Args:
        text: A template.
        context: Its values.

    Raises:
        ValueError: The template has something that its language has not.
    """
    asked: list[bool] = []
    fields: tuple[str, ...] = ()
    reason = ""
    for line in text.splitlines():
        tag, note = TAG.fullmatch(line), NOTE.fullmatch(line)
        if tag and tag["name"]:
            asked.append(bool(context[tag["name"]]))
        elif tag and tag["word"] == "else":
            asked[-1] = not asked[-1]
        elif tag:
            asked.pop()
        elif note:
            fields = tuple(name for name in note["fields"].split(", ") if name != "always")
            reason = VALUE.sub(lambda match: str(context[match[1]]), note["reason"])
        elif re.search(r"\{[%#]|[%#]\}|\{\{(?! [a-z_]+ \}\})", line):
            raise ValueError(f"the template's line {line!r} is not in its language")
        else:
            if all(asked):
                filled = VALUE.sub(lambda match: str(context[match[1]]), line)
                for part, piece in enumerate(filled.split("\n")):
                    yield Line(piece, fields, reason, part)
            fields, reason = (), ""
    if asked:
        raise ValueError("the template has an if without its endif")
