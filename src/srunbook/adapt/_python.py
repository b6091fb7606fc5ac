"""Change which Python the programs of a script are run by: a virtual environment or one of conda."""

from __future__ import annotations

import re
from dataclasses import dataclass

from srunbook.adapt._lines import add_line, command_text, remove_line, require_plain
from srunbook.adapt._plan import Plan
from srunbook.adapt._rules import pattern, refusal, rules
from srunbook.generate import conda_activation, quote_place
from srunbook.script import Assignment, Command, Edit


@dataclass(frozen=True)
class Target:
    """The environment of the configuration.

    Args:
        field: The field that names it.
        place: Its folder, as the shell has it.
        activation: The command that activates it.
    """

    field: str
    place: str
    activation: str


def target(plan: Plan) -> Target | None:
    """Return the environment of the configuration; None if it names none."""
    values = plan.site.values
    if place := values.get("virtual_environment"):
        return Target("virtual_environment", quote_place(place), f"source {quote_place(f'{place}/bin/activate')}")
    if place := values.get("conda_environment"):
        return Target("conda_environment", quote_place(place), f"source {conda_activation(place)}")
    return None


def plan_python(plan: Plan, wanted: Target) -> None:
    """Plan the lines that choose a Python, or add one where there is none.

    Raises:
        ScriptError: There are several, or one is under a condition.
    """
    folders = prefixes(plan)
    activations = [command for command in plan.shell.commands if is_activation(command)]
    if wanted.field == "virtual_environment":  # a folder in a variable decides what is activated
        names = {folder.name for folder in folders}
        activations = [one for one in activations if not uses(one, names)]
    require_plain(folders, "an assignment of an environment")
    require_plain(activations, "the activation of an environment")
    for folder in folders:
        plan.seen.add(folder.line)
        if folder.value.raw != wanted.place:
            edit = Edit(folder.value.start, folder.value.end, wanted.place.encode())
            plan.change(edit, folder.line, f"{folder.name}={folder.value.raw} becomes {wanted.place}", wanted.field)
    changed = not folders and not activations
    for command in activations:
        plan.seen.add(command.line)
        before = command_text(plan, command)
        if before != wanted.activation:
            edit = Edit(command.start, command.end, wanted.activation.encode())
            plan.change(edit, command.line, f"{before} becomes {wanted.activation}", wanted.field)
            changed = True
    for command in plan.shell.commands:
        if activations and command.plain and is_setup(command):
            remove_line(plan, command, wanted.field)
    if not folders and not activations:
        add_line(plan, wanted.activation, wanted.field)
    if changed and wanted.field == "conda_environment":
        warn_of_unset_variables(plan)


def warn_of_unset_variables(plan: Plan) -> None:
    """Tell a person where `set -u` may end the job in the scripts of conda."""
    for command in plan.shell.commands:
        options = [word.raw for word in command.words[1:2] if command.name == "set"]
        if options and re.match("-[a-z]*u", options[0]):
            plan.note(command.line, "if conda stops at an unbound variable, move -u below its activation")


def prefixes(plan: Plan) -> list[Assignment]:
    """List the assignments of variables that hold the folder of an environment: the script uses their `bin`."""
    known = rules()["environment"]["prefix"]
    used = set()
    for name, end in plan.shell.expansions:
        match = pattern(known["behind"]).match(plan.script.data[end : end + 40].decode("latin-1"))
        if match and (match["program"] in known["programs"] or pattern(known["names"]).match(name.lower())):
            used.add(name)
    return [one for one in plan.shell.assignments if one.name in used]


def is_activation(command: Command) -> bool:
    """Tell whether a command activates an environment: `source X/bin/activate`, `conda activate X` and their like."""
    known, words = rules()["environment"], command.words
    if command.name in known["conda"]["commands"]:
        return len(words) > 1 and words[1].literal == "activate"
    if command.name not in known["activate"]["commands"] or len(words) < 2:
        return False
    file = words[1].raw.strip("\"'")
    return file.endswith(known["activate"]["file"]) or file == "activate"


def is_setup(command: Command) -> bool:
    """Tell whether a command makes `conda activate` known to the shell."""
    known = rules()["environment"]
    text = " ".join(word.raw for word in command.words[1:])
    if command.name == "eval":
        return any(word in text for word in known["conda"]["setup_words"])
    return command.name in known["activate"]["commands"] and text.strip("\"'").endswith(known["conda"]["setup_file"])


def uses(command: Command, names: set[str]) -> bool:
    """Tell whether a command activates what one of these variables says."""
    match = re.match(r'"?\$\{?(\w+)\}?"?/bin/', command.words[1].raw)
    return len(command.words) == 2 and match is not None and match[1] in names


def refuse_container(containers: list[Command], wanted: Target) -> None:
    """Refuse a script that runs its programs in a container."""
    if containers:
        raise refusal(containers[0].line, "out_of_container", field=wanted.field)
