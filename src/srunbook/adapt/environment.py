"""Change the lines of the shell: modules, the Python or the container of the programs, and network interfaces."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from srunbook.adapt.configuration import pattern, refusal, rules
from srunbook.adapt.plan import Change, Plan
from srunbook.generate import conda_activation, quote, quote_place
from srunbook.script import Assignment, Command, Edit, ShellWord

ENVIRONMENT = frozenset(
    {"modules_to_load", "virtual_environment", "conda_environment", "container_image", "network_interface"}
)
"""Fields that change lines of the shell."""


def plan_environment(plan: Plan) -> None:
    """Plan the lines of the environment.

    Raises:
        ScriptError: They are not understood.
    """
    if plan.shell.problem:
        raise refusal(plan.shell.problem, "syntax")
    values = plan.site.values
    if "modules_to_load" in values:
        plan_modules(plan, list(values["modules_to_load"] or []))
    python, image = target(plan), values.get("container_image")
    if python or image:
        inside = containers(plan)
        if image:
            plan_container(plan, inside, image)
        if python:
            refuse_container(inside, python)
            plan_python(plan, python)
    if interfaces := values.get("network_interface"):
        plan_interfaces(plan, interfaces)


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


def plan_modules(plan: Plan, wanted: list[str]) -> None:
    """Plan the commands that load modules: each keeps its place and its comment, as far as there are enough modules.

    Raises:
        ScriptError: One of them is under a condition, or has to go and shares its line with something else.
    """
    loads = [(command, places) for command in plan.shell.commands if (places := loaded_words(command))]
    for command, _ in loads:
        plan.seen.add(command.line)
        if not command.plain:
            raise refusal(command.line, "conditional", what="a module")
    found = [word.literal for command, (first, last) in loads for word in command.words[first : last + 1]]
    if found == wanted:
        return
    left = list(wanted)
    for number, (command, (first, last)) in enumerate(loads, start=1):
        mine = left if number == len(loads) else left[:1]
        left = left[len(mine) :]
        if not mine:
            remove_line(plan, command, "modules_to_load")
            continue
        text = " ".join(map(quote, mine))
        start, end = command.words[first].start, command.words[last].end
        if plan.script.data[start:end] != text.encode():
            after = plan.script.data[command.start : start].decode("utf-8", "replace") + text
            said = f"{command_text(plan, command)} becomes {after}"
            plan.change(Edit(start, end, text.encode()), command.line, said, "modules_to_load")
    if not loads:
        for name in wanted:
            add_line(plan, f"module load {quote(name)}", "modules_to_load")


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
        plan.change(Edit(word.start, word.end, text.encode()), line, f"{word.raw} becomes {text}", "container_image")


def plan_interfaces(plan: Plan, wanted: str) -> None:
    """Plan the variables that name the interface: those that the script names, also in a comment, or else all.

    Raises:
        ScriptError: One of them is set several times, or under a condition.
    """
    known: list[str] = rules()["environment"]["interfaces"]
    for name in [name for name in known if name.encode() in plan.script.data] or known:
        given = [one for one in plan.shell.assignments if one.name == name]
        require_plain(given, f"an assignment of {name}")
        for one in given:
            plan.seen.add(one.line)
            if one.value.literal != wanted:
                edit = Edit(one.value.start, one.value.end, wanted.encode())
                plan.change(edit, one.line, f"{name}={one.value.raw} becomes {wanted}", "network_interface")
        if not given:
            add_line(plan, f"export {name}={wanted}", "network_interface")
