"""Change directives: who is charged, in which queue, on which nodes, with which GPUs, tasks and CPUs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from srunbook.adapt.configuration import pattern, refusal, rules
from srunbook.adapt.plan import Plan
from srunbook.script import Edit, Option, Script, ShellWord


@dataclass(frozen=True)
class Shape:
    """Nodes and tasks.

    Args:
        nodes: Number of nodes; None where the script does not say exactly how many.
        tasks: Tasks of a node; None where that is not known.
        option: The option that the tasks follow from; None where they are Slurm's one on each node.
    """

    nodes: int | None
    tasks: int | None
    option: Option | None


def number(option: Option | None) -> int | None:
    """Return the value of an option if it is a plain number."""
    text = (option and option.value) or ""
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else None


def shape(script: Script) -> Shape:
    """Read the nodes and tasks of a script."""
    names = rules()["tasks"]
    nodes = number(script.last(*names["nodes"]))
    of_a_node, all_tasks = script.last(*names["of_a_node"]), script.last(*names["of_the_job"])
    if of_a_node:
        return Shape(nodes, number(of_a_node) or None, of_a_node)
    if all_tasks:
        count = number(all_tasks) or 0
        return Shape(nodes, count // nodes if nodes and count and count % nodes == 0 else None, all_tasks)
    return Shape(nodes, 1, None)


@dataclass(frozen=True)
class Asked:
    """What a script asks for.

    Args:
        option: The option.
        kind: Type of the GPUs; None without.
        count: Their number, of whatever the option counts them for.
        entries: The entries of `--gres`, with None in place of the GPUs.
    """

    option: Option
    kind: str | None
    count: int
    entries: tuple[str | None, ...] = ()


def plan_gpus(plan: Plan) -> tuple[int | None, int | None]:
    """Plan the GPUs of a node.

    A job that asks for one GPU of a node keeps one; any other gets all of the node. Where there was one task for each
    GPU, there is one for each GPU again.

    Returns:
        GPUs of a node and tasks of a node that the job asks for in the end; None for what is not known.
    """
    there = shape(plan.script)
    found = asked(plan.script)
    if found is None:
        if plan.site.gpus:
            plan.note(1, "the script asks for no GPUs, and gets none")
        return None, there.tasks
    if "gpus_per_node" not in plan.site.values:
        if plan.site.platform == "cpu":
            plan.note(found.option.line, "asks for GPUs, and the configuration has platform: cpu")
        return None, there.tasks
    if plan.site.gpus is None:
        plan.take_away(found.option, "gpus_per_node")
        return None, there.tasks
    if found.option.name in rules()["gpus"]["of_something_else"]:
        return plan_kind(plan, found, there), there.tasks
    if found.count == 0:
        return None, there.tasks
    count = 1 if found.count == 1 else plan.site.gpus
    write(plan, found, count)
    if count == found.count:
        return count, there.tasks
    plan_process_counts(plan, found.count, count)
    if there.tasks != found.count or there.option is None:
        return count, there.tasks
    total = there.option.name in rules()["tasks"]["of_the_job"]
    plan.give(there.option, str(count * (there.nodes or 1) if total else count), "gpus_per_node")
    return count, count


def asked(script: Script) -> Asked | None:
    """Read how a script asks for GPUs; return None if it does not.

    Raises:
        ScriptError: It does so twice, or in a form that is not understood.
    """
    names = rules()["gpus"]
    found = [
        read(option) for name in (*names["of_a_node"], *names["of_something_else"]) if (option := script.last(name))
    ]
    asks = [one for one in found if one]
    if len(asks) > 1:
        raise refusal(asks[0].option.line, "gpus_twice", other=asks[1].option.line)
    return asks[0] if asks else None


def read(option: Option) -> Asked | None:
    """Read an option that may ask for GPUs."""
    value, names = option.value or "", rules()["gpus"]
    problem = refusal(option.line, "gpus_form", option=option.name, value=value)
    if option.name in ("gres", "tres-per-task"):
        if "gpu" not in value:
            return None
        entries = value.split(",")
        matches = [pattern(names["entry"]).match(entry) for entry in entries]
        if option.name != "gres" or sum("gpu" in entry for entry in entries) != 1 or not any(matches):
            raise problem
        mine = next(match for match in matches if match)
        others = tuple(None if one else entry for entry, one in zip(entries, matches, strict=True))
        return Asked(option, mine["kind"], int(mine["count"] or 1), others)
    match = pattern(names["number"]).match(value)
    if not match:
        raise problem
    return Asked(option, match["kind"], int(match["count"]))


def write(plan: Plan, found: Asked, count: int) -> None:
    """Plan the option that asks for so many GPUs of a node, as `srunbook generate` writes it."""
    kind = plan.site.kind
    typed = f"{kind}:{count}" if kind else str(count)
    if len(found.entries) > 1:  # the other resources stay in their option
        plan.give(found.option, ",".join(entry or f"gpu:{typed}" for entry in found.entries), "gpus_per_node")
    elif kind:
        plan.give(found.option, f"gpu:{typed}", "gpus_per_node", "gres")
    else:
        plan.give(found.option, typed, "gpus_per_node", "gpus-per-node")


def plan_kind(plan: Plan, found: Asked, there: Shape) -> int | None:
    """Plan the type of GPUs that are counted for each task or for the whole job; their number stays.

    Returns:
        GPUs of a node, if that is known.
    """
    option, kind = found.option, plan.site.kind
    plan.give(option, f"{kind}:{found.count}" if kind else str(found.count), "gpus_per_node")
    of_a_node = {
        "gpus-per-task": there.tasks and there.tasks * found.count,
        "gpus": there.nodes and -(-found.count // there.nodes),
    }.get(option.name)
    if of_a_node and plan.site.gpus and of_a_node > plan.site.gpus:
        raise refusal(option.line, "gpus_too_many", found=of_a_node, most=plan.site.gpus)
    return of_a_node


def plan_process_counts(plan: Plan, before: int, after: int) -> None:
    """Plan the numbers that tell a launcher how many processes to start on a node, where they were the GPUs."""
    seen: set[int] = set()
    for word in counts(plan):
        if word.literal == str(before) and word.start not in seen:
            seen.add(word.start)
            line = plan.script.line_at(word.start)
            plan.change(
                Edit(word.start, word.end, word.raw.replace(str(before), str(after)).encode()),
                line,
                f"processes of a node: {before} becomes {after}",
                "gpus_per_node",
            )


def counts(plan: Plan) -> list[ShellWord]:
    """List the words that say how many processes a launcher starts, also where a variable says it."""
    found = []
    for words in (*(command.words for command in plan.shell.commands), *plan.shell.arrays):
        for place, word in enumerate(words):
            name, sign, rest = word.raw.partition("=")
            if name not in rules()["process_count"]:
                continue
            if sign:
                found.append(ShellWord(rest, word.start + len(name) + 1, word.end))
            elif place + 1 < len(words):
                found.append(words[place + 1])
    variables = {match[1] for word in found if (match := re.fullmatch(r'"?\$\{?(\w+)\}?"?', word.raw))}
    return [*found, *(one.value for one in plan.shell.assignments if one.name in variables and one.plain)]


def plan_directives(plan: Plan) -> None:
    """Plan the changes of all directives.

    Raises:
        ScriptError: The script asks for GPUs or tasks in a way that is not understood, or that the site cannot give.
    """
    values = plan.site.values
    for field, name in rules()["directives"].items():
        if field not in values:
            continue
        option = plan.script.last(name)
        if values[field] is None:
            for found in plan.script.options:
                if found.name == name:
                    plan.take_away(found, field)
        elif option is None:
            plan.add(name, values[field], field)
        else:
            plan.give(option, values[field], field)
    plan_cpus(plan, *plan_gpus(plan))


def plan_cpus(plan: Plan, gpus: int | None, tasks: int | None) -> None:
    """Plan the CPUs of each task: those of the node divided by its tasks, or the part that goes with the job's GPUs.

    Args:
        plan: The plan.
        gpus: GPUs of a node that the job asks for in the end; None if it asks for none, or if nobody knows how many.
        tasks: Tasks of a node in the end; None if nobody knows.
    """
    names, whole = rules()["cpus"], plan.site.values.get("cpus_per_node")
    if whole is None:
        return
    all_gpus = plan.site.gpus
    of_a_gpu = plan.script.last(*names["of_a_gpu"])
    if of_a_gpu and all_gpus:
        plan.give(of_a_gpu, str(max(1, whole // all_gpus)), "cpus_per_node")
        return
    option = plan.script.last(*names["of_a_task"])
    if option is None and gpus is None:
        return  # Slurm gives each task one CPU, and the script may mean that
    if tasks is None:
        line = option.line if option else 1
        plan.note(line, "the tasks of a node are not known, so the CPUs of each stay as they are")
        return
    part = whole * gpus // all_gpus if gpus and all_gpus else whole
    if part < tasks:
        asked = shape(plan.script).option
        raise refusal(asked.line if asked else 1, "cpus_too_few", tasks=tasks, cpus=part)
    if option:
        plan.give(option, str(part // tasks), "cpus_per_node")
    else:
        plan.add("cpus-per-task", str(part // tasks), "cpus_per_node")
