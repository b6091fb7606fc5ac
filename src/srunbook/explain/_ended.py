"""Tell from what srun says of its tasks which one ended first, where nothing else in a log says why a job failed."""

from __future__ import annotations

import re

TASK = re.compile(
    r"^srun: error: (?P<host>\S+): (?:task (?P<rank>[0-9]{1,6})|tasks (?P<ranks>[0-9,-]+)): "
    r"(?:Exited with (?P<code>exit code [0-9]+)|(?P<signal>.+))$"
)
"""How one or several tasks ended: `srun: error: node4: task 1: Exited with exit code 1`."""

STOPPED = "Terminated"
"""How a task ends that somebody else has stopped: scancel, a time limit, or srun because of another task."""


def ended_first(line: str) -> str:
    """Return who ended first and how, in words; an empty text if the line tells of no task that ended by itself.

    Args:
        line: The first line in which srun or slurmstepd says that a task or the step has ended.

    >>> ended_first("srun: error: node4: task 1: Exited with exit code 1")
    'Rank 1 on node4 ended first, with exit code 1; nothing that it printed says why.'
    >>> ended_first("srun: error: node2: tasks 4-7: Killed")
    'Ranks 4-7 on node2 ended first, by a signal (Killed); nothing that they printed says why.'
    >>> ended_first("srun: error: node3: task 0: Terminated")
    ''
    """
    found = TASK.match(line)
    if not found or found["signal"] == STOPPED:
        return ""
    who, they = (f"Rank {found['rank']}", "it") if found["rank"] else (f"Ranks {found['ranks']}", "they")
    how = f"with {found['code']}" if found["code"] else f"by a signal ({found['signal']})"
    return f"{who} on {found['host']} ended first, {how}; nothing that {they} printed says why."
