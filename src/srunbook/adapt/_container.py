"""Change the image of the container that programs run in."""

from __future__ import annotations

import re

from srunbook.adapt._lines import require_plain
from srunbook.adapt._plan import Plan
from srunbook.adapt._rules import refusal, rules
from srunbook.generate import quote_place
from srunbook.script import Command, Edit, ShellWord

FIELD = "container_image"


def containers(plan: Plan) -> list[Command]:
    """List the commands that run a program in a container, also through srun.

    Raises:
        ScriptError: One does so in a way that is not understood.
    """
    known = rules()["environment"]["container"]
    found = []
    for command in plan.shell.commands:
        if any(word.raw.startswith(known["of_srun"]) for word in command.words):
            raise refusal(command.line, "other_container", what=known["of_srun"])
        if any(word.literal in known["commands"] for word in command.words):
            found.append(command)
    if option := plan.script.last(known["of_srun"].removeprefix("--")):
        raise refusal(option.line, "other_container", what=known["of_srun"])
    return found


def plan_container(plan: Plan, commands: list[Command], image: str) -> None:
    """Plan the image of each command that runs a container.

    Raises:
        ScriptError: No command does, or its image is not understood.
    """
    text = quote_place(image)
    words = [image_of(command) for command in commands]
    running = [(command, word) for command, word in zip(commands, words, strict=True) if word]
    if not running:
        steps = plan.shell.steps
        raise refusal(plan.script.line_at(steps[-1][0]) if steps else 1, "into_container")
    variables = set()
    for command, word in running:
        match = re.fullmatch(r'"?\$\{?(\w+)\}?"?', word.raw)
        if match and any(one.name == match[1] for one in plan.shell.assignments):
            variables.add(match[1])
        else:
            replace(plan, word, command.line, text)
    for name in sorted(variables):
        given = [one for one in plan.shell.assignments if one.name == name]
        require_plain(given, f"an assignment of {name}")
        replace(plan, given[0].value, given[0].line, text)


def image_of(command: Command) -> ShellWord | None:
    """Return the word that names the image; None for a command that runs no image, such as `singularity pull`.

    Raises:
        ScriptError: An array or a variable may hold options, so nobody knows which word it is.
    """
    known, words = rules()["environment"]["container"], list(command.words)
    while words and words[0].literal not in known["commands"]:
        words.pop(0)
    name = words.pop(0)
    while words and words[0].raw.startswith("-"):
        words.pop(0)
    if not words or words.pop(0).literal not in known["verbs"]:
        return None
    while words and words[0].raw.startswith("-"):
        words = words[2:] if words[0].raw in known["with_argument"] else words[1:]
    rest = [word.raw for word in words]
    if not rest or "[@]" in rest[0] or any(word.startswith("-") for word in rest[1:2]) or holds_options(rest):
        raise refusal(command.line, "other_container", what=name.raw)
    return words[0]


def holds_options(words: list[str]) -> bool:
    """Tell whether a variable in the place of the image holds options, or nothing: the image itself follows it."""
    ends = tuple(rules()["environment"]["container"]["images"])
    return words[0].startswith("$") and any(word.strip("\"'").endswith(ends) for word in words[1:])


def replace(plan: Plan, word: ShellWord, line: int, text: str) -> None:
    """Plan another image in place of a word."""
    plan.seen.add(line)
    if word.raw != text:
        plan.change(Edit(word.start, word.end, text.encode()), line, f"{word.raw} becomes {text}", FIELD)
