"""The template's language: so little of Jinja that a page can render the same text in a browser.

- `{{ name }}` stands for a text or a number;
- a line `{% if name %}`, `{% else %}` or `{% endif %}` by itself asks whether there is a value;
- a line `{# fields: reason #}` by itself explains the next line; the reason may have values, too.

Each line keeps the reason that the template gives for it, so the script and its explanation cannot differ. Everything
else that looks like a tag is refused, and so is a name without a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

Context = Mapping[str, str | int | bool | None]

TAG = re.compile(r"\{% (?:if (?P<name>[a-z_]+)|(?P<word>else|endif)) %\}")
NOTE = re.compile(r"\{# (?P<fields>[a-z_, ]+): (?P<reason>.*) #\}")
VALUE = re.compile(r"\{\{ ([a-z_]+) \}\}")
OTHER = re.compile(r"\{[%#]|[%#]\}|\{\{(?! [a-z_]+ \}\})")


@dataclass(frozen=True)
class RenderedLine:
    """A line that a template gave.

    Args:
        text: The line.
        fields: Fields that it depends on; none for a line that is always the same.
        reason: Why it is there; empty for comments and empty lines.
        part: Its place, from 0, among the lines that a value of several lines gave.
    """

    text: str
    fields: tuple[str, ...]
    reason: str
    part: int


@cache
def source() -> str:
    """Read the template of a job script."""
    return files("srunbook.generate").joinpath("job.sbatch.template").read_text(encoding="utf-8")


def rendered(template: str, context: Context) -> Iterator[RenderedLine]:
    """Render a template line by line.

    Args:
        template: A text in the language of this module.
        context: A value for each name.

    Raises:
        ValueError: The template says something that its language does not know, or shows a name without a value.
    """
    fields: tuple[str, ...] = ()
    reason = ""
    for line in chosen(template, context):
        note = NOTE.fullmatch(line)
        if note:
            fields = tuple(name for name in note["fields"].split(", ") if name != "always")
            reason = filled(note["reason"], context)
            continue
        for part, text in enumerate(filled(line, context).split("\n")):
            yield RenderedLine(text, fields, reason, part)
        fields, reason = (), ""


def chosen(template: str, context: Context) -> Iterator[str]:
    """Choose the lines of a template, as its ifs say.

    Raises:
        ValueError: A line, chosen or not, says something that the language does not know.
    """
    asked: list[bool] = []
    for line in template.splitlines():
        tag = TAG.fullmatch(line)
        if tag and tag["name"]:
            asked.append(bool(value(tag["name"], context)))
        elif tag and not asked:
            raise ValueError(f"the template has {line!r} without its if")
        elif tag and tag["word"] == "else":
            asked[-1] = not asked[-1]
        elif tag:
            asked.pop()
        elif not NOTE.fullmatch(line) and OTHER.search(line):
            raise ValueError(f"the template's line {line!r} is not in its language")
        elif all(asked):
            yield line
    if asked:
        raise ValueError("the template has an if without its endif")


def filled(line: str, context: Context) -> str:
    """Put values into a line; what stands in a value is never a tag."""

    def text(match: re.Match[str]) -> str:
        found = value(match[1], context)
        if found is None or isinstance(found, bool):
            raise ValueError(f"the template shows {match[1]!r}, which is {found}: ask for it with an if")
        return str(found)

    return VALUE.sub(text, line)


def value(name: str, context: Context) -> str | int | bool | None:
    """Return the value of a name.

    Raises:
        ValueError: It has none.
    """
    if name not in context:
        raise ValueError(f"the template names {name!r}, which has no value")
    return context[name]
