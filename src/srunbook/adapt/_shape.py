"""How many nodes and tasks a script asks for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from srunbook.adapt._rules import rules
from srunbook.script import Option, Script


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
