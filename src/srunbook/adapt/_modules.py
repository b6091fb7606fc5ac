"""Change which modules a script loads."""

from __future__ import annotations

from srunbook.adapt._lines import add_line, command_text, loaded_words, remove_line
from srunbook.adapt._plan import Plan
from srunbook.adapt._rules import refusal
from srunbook.generate import quote
from srunbook.script import Edit

FIELD = "modules_to_load"


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
            remove_line(plan, command, FIELD)
            continue
        text = " ".join(map(quote, mine))
        start, end = command.words[first].start, command.words[last].end
        if plan.script.data[start:end] != text.encode():
            after = plan.script.data[command.start : start].decode("utf-8", "replace") + text
            said = f"{command_text(plan, command)} becomes {after}"
            plan.change(Edit(start, end, text.encode()), command.line, said, FIELD)
    if not loads:
        for name in wanted:
            add_line(plan, f"module load {quote(name)}", FIELD)
