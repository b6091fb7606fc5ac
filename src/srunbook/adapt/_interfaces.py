"""Change which network interface the programs of a script use between the nodes."""

from __future__ import annotations

from srunbook.adapt._lines import add_line, require_plain
from srunbook.adapt._plan import Plan
from srunbook.adapt._rules import rules
from srunbook.script import Edit

FIELD = "network_interface"


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
                plan.change(edit, one.line, f"{name}={one.value.raw} becomes {wanted}", FIELD)
        if not given:
            add_line(plan, f"export {name}={wanted}", FIELD)
