"""What is to be changed in a script, and why."""

from __future__ import annotations

from dataclasses import dataclass, field

from srunbook.adapt.configuration import Site
from srunbook.script import Edit, Option, Script, Shell, add_directive, directive, remove, set_value


@dataclass(frozen=True)
class Change:
    """Something that was changed.

    Args:
        line: Line of the script as it was, from 1.
        text: What was changed.
        field: The field of the configuration.
        origin: Where its value came from, such as a file and its line.
    """

    line: int
    text: str
    field: str
    origin: str


@dataclass
class Plan:
    """Changes to a script, collected one by one.

    Args:
        script: The script.
        shell: Its syntax.
        site: What it is adapted to.
        edits: What is changed, by place.
        changes: The same in words.
        notes: Lines that a person has to look at, each with a text.
        seen: Lines that the configuration says something about.
    """

    script: Script
    shell: Shell
    site: Site
    edits: list[Edit] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    notes: list[tuple[int, str]] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def change(self, edit: Edit, line: int, text: str, name: str) -> None:
        """Make an edit because of a field."""
        self.edits.append(edit)
        self.changes.append(Change(line, text, name, self.site.origins[name]))
        self.seen.add(line)

    def note(self, line: int, text: str) -> None:
        """Tell a person about a line that stays as it is."""
        self.notes.append((line, text))

    def give(self, option: Option, value: str, why: str, name: str | None = None) -> None:
        """Give an option a value, or write another one in its place; do nothing where it has that value."""
        self.seen.add(option.line)
        if option.value == value and name in (None, option.name):
            return
        before = directive_text(option.name, option.value)
        text = f"{before} becomes {directive(name or option.name, value)}"
        self.change(set_value(option, value, name), option.line, text, why)

    def add(self, name: str, value: str, why: str) -> None:
        """Add a directive."""
        line = self.script.lines[-1].number if self.script.lines else 1
        text = f"{directive(name, value)} is added after this line"
        self.edits.append(add_directive(self.script, name, value))
        self.changes.append(Change(line, text, why, self.site.origins[why]))

    def take_away(self, option: Option, why: str) -> None:
        """Remove an option."""
        text = f"{directive_text(option.name, option.value)} is removed"
        self.change(remove(self.script, option), option.line, text, why)


def directive_text(name: str, value: str | None) -> str:
    """Write an option for a message."""
    return f"--{name}" if value is None else f"--{name}={value}"
