"""Change directives: who is charged, in which queue, on which nodes, with which GPUs and CPUs."""

from __future__ import annotations

from srunbook.adapt._gpus import plan_gpus
from srunbook.adapt._plan import Plan
from srunbook.adapt._rules import refusal, rules
from srunbook.adapt._shape import shape


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
