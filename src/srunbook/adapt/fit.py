"""Adapt a script: read it, plan the changes, apply them, and say what is left for a person."""

from __future__ import annotations

import re
from dataclasses import dataclass

from srunbook.adapt.configuration import Site, pattern, refusal, rules
from srunbook.adapt.directives import plan_directives
from srunbook.adapt.environment import ENVIRONMENT, plan_environment
from srunbook.adapt.plan import Change, Plan
from srunbook.script import Command, apply, parse, read_shell


@dataclass(frozen=True)
class Adapted:
    """An adapted script.

    Args:
        data: Its bytes.
        changes: What was changed, by line.
        notes: Lines that stay as they are although a person has to look at them, each with a text.
    """

    data: bytes
    changes: tuple[Change, ...]
    notes: tuple[tuple[int, str], ...]


def adapt(data: bytes, site: Site) -> Adapted:
    """Fit a job script to a site.

    Adapting twice is adapting once, and a script that `srunbook generate` made from the same configuration stays as it
    is.

    Args:
        data: The script.
        site: The site.

    Returns:
        The script, of which only the places that `changes` names differ.

    Raises:
        ScriptError: Something in the script is not understood, or cannot be had at the site.
    """
    script = parse(data)
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.startswith((b"#PBS ", b"#BSUB ")):
            raise refusal(number, "pbs")
    first = data.partition(b"\n")[0].decode("latin-1").rstrip()
    understood = pattern(rules()["shells"]).search(first) is not None
    plan = Plan(script, read_shell(data if understood else b""), site)
    plan_directives(plan)
    if ENVIRONMENT & site.values.keys():
        if not understood:
            raise refusal(1, "shell")
        plan_environment(plan)
    tell_the_rest(plan)
    made = apply(data, plan.edits)
    changes = sorted(plan.changes, key=lambda change: change.line)
    return Adapted(made, tuple(changes), tuple(sorted(plan.notes)))


def tell_the_rest(plan: Plan) -> None:
    """Note what the configuration says nothing about, and what the script asks for by itself."""
    if b"\r\n" in plan.script.data:
        plan.note(1, "lines end as in DOS, which sbatch refuses")
    marked = re.compile(rf"#.*\b{rules()['mark']}\b".encode())
    for number, line in enumerate(plan.script.data.split(b"\n"), start=1):
        if marked.search(line) and number not in plan.seen:
            plan.note(number, f"marked {rules()['mark']}, and the configuration does not name it")
    for command in plan.shell.commands:
        if command.name == "srun" and (own := own_options(command)):
            plan.note(command.line, f"srun asks for {' '.join(own)} itself")


def own_options(command: Command) -> list[str]:
    """List the options of srun whose values are written out, and were perhaps right at another site."""
    words, found = list(command.words[1:]), []
    while words and words[0].raw.startswith("-"):
        name, sign, value = words.pop(0).raw.partition("=")
        if name in rules()["of_srun"]:
            value = value if sign or not words else words.pop(0).raw
            found += [f"{name}{sign or ' '}{value}"] if "$" not in value else []
    return found
