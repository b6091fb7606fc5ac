"""Add and remove whole lines of the shell, and refuse what runs only under a condition."""

from __future__ import annotations

from collections.abc import Sequence

from srunbook.adapt._plan import Change, Plan
from srunbook.adapt._rules import refusal, rules
from srunbook.script import Assignment, Command, Edit


def require_plain(found: Sequence[Assignment | Command], what: str) -> None:
    """Require at most one of its kind, which runs exactly once.

    Raises:
        ScriptError: There are several, or it is in an if, a loop, a function or a pipe.
    """
    for one in found:
        if not one.plain:
            raise refusal(one.line, "conditional", what=what)
    if len(found) > 1:
        raise refusal(found[0].line, "several", what=what, other=found[1].line)


def remove_line(plan: Plan, command: Command, field: str) -> None:
    """Plan to remove the line of a command.

    Raises:
        ScriptError: Something else is on its line.
    """
    start, end = plan.script.line_span(command.start)[0], plan.script.line_span(command.end)[1]
    before, after = plan.script.data[start : command.start], plan.script.data[command.end : end].strip()
    text = command_text(plan, command)
    if before.strip() or (after and not after.startswith(b"#")) or not command.plain:
        raise refusal(command.line, "own_line", what=text)
    plan.change(Edit(start, end, b""), command.line, f"{text} is removed", field)


def command_text(plan: Plan, command: Command) -> str:
    """Return a command as the script has it, for a message."""
    return plan.script.data[command.start : command.end].decode("utf-8", "replace")


def add_line(plan: Plan, text: str, field: str) -> None:
    """Plan a new line before the first statement that is not one like `set -e`; after modules where there are some."""
    data = plan.script.data
    loads = [command for command in plan.shell.commands if is_load(command) and command.plain]
    steps = [start for start, name in plan.shell.steps if name not in rules()["environment"]["before"]]
    if loads and field != "modules_to_load":
        place = plan.script.line_span(loads[-1].end)[1]
    else:
        place = plan.script.line_span(steps[0])[0] if steps else len(data)
    newline = b"\r\n" if b"\r\n" in data else b"\n"
    new = text.encode() + newline
    if place == len(data) and not data.endswith(b"\n"):
        new = newline + text.encode()
    line = plan.script.line_at(place)
    plan.edits.append(Edit(place, place, new))
    plan.changes.append(Change(line, f"{text} is added before this line", field, plan.site.origins[field]))


def is_load(command: Command) -> bool:
    """Tell whether a command loads modules."""
    return bool(loaded_words(command))


def loaded_words(command: Command) -> tuple[int, int] | None:
    """Return the first and the last place of the modules among the words of a command; None if it loads none."""
    known = rules()["environment"]["modules"]
    if command.name not in known["commands"]:
        return None
    place = 1
    while place < len(command.words) and command.words[place].raw.startswith("-"):
        place += 1
    verb = command.words[place].literal if place < len(command.words) else None
    if verb in known["load"]:
        place += 1
    elif command.name == "module" or verb in known["other"]:
        return None
    return (place, len(command.words) - 1) if place < len(command.words) else None
