"""Tell from a line alone whether it speaks of trouble, when no entry knows it."""

from __future__ import annotations

import re
from enum import IntEnum

WORDS = (
    b"rror", b"ERR", b"xception", b"ail", b"FAIL", b"FATAL", b"atal", b"ault", b"illed", b"bort", b"arn", b"WARN",
    b"annot", b"an't", b"nable to", b"enied", b"efused", b"imed out", b"imeout", b"not found", b"No such", b"nvalid",
    b"Interrupt", b"Exit", b"space left", b"exceeded", b"dumped", b"erminat",
)  # fmt: skip
"""One of these stands in every line that speaks of trouble."""

EXCEPTION = re.compile(
    r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout|Failure|Warning)\b(?=:|$)"
)
"""The last line of a traceback."""

HARD = re.compile(
    r"Segmentation fault|Bus error|Illegal instruction|core dumped|Fatal Python error|^Killed\b|\bFATAL\b|"
    r"terminate called|Aborted|: command not found|: not found$|: No such file or directory|Disk quota exceeded|"
    r"No space left on device|: Permission denied|[Aa]ssertion .*failed"
)
NO_VALUE = r"(?! ?[:=]? *[-+]?(?:\d+\.\d+(?:e[-+]?\d+)?|\d+e[-+]?\d+|0|nan|inf)(?![\w.:]))"
"""Tells an error that is reported from one that is measured: `test error: 0.412`."""

ERROR = re.compile(rf"\b(?:error|ERROR|Error|fatal)\b{NO_VALUE} ?[:!]|^(?:error|ERROR)\b{NO_VALUE}")
SOFT = re.compile(
    r"(?i)\bwarn|\bfail|\bcannot\b|\bcan't\b|\bunable\b|\bdenied\b|\brefused\b|\btimed? ?out\b|"
    rf"\berror{NO_VALUE}"
)

ENDED = re.compile(
    r"^srun: error: \S+ tasks? [\d,-]+: (?:Exited with exit code|Terminated|Killed|Aborted|Out Of Memory)|"
    r"^srun: (?:Job step aborted|Terminating |launch/slurm|Force Terminated)|"
    r"^slurmstepd\S*: error: \*\*\* (?:STEP|JOB) \S+ ON \S+ CANCELLED AT \S+ (?:DUE TO TASK FAILURE )?\*\*\*"
)
"""Lines that say that tasks or a whole step have ended, but not why."""

RESULT = re.compile(
    r"^srun: error: Timed out waiting for job step|^Traceback|^Exception raised from|^frame #|"
    r"^sacct: |^squeue: |ChildFailedError|^\s+error_file:|^\s+traceback :"
)
"""Lines that only report that something has failed: which, another line says."""


CHAINED = re.compile(r"The above exception was the direct cause of|During handling of the above exception, another")
"""Stands between two exceptions of one traceback; the one above is no failure of its own."""


class Trouble(IntEnum):
    """How loudly a line speaks of trouble: the last three can be why a job ended; ENDED says who ended first."""

    NONE = 0
    ENDED = 1
    HINT = 2
    ERROR = 3
    HARD = 4
    EXCEPTION = 5


def trouble(text: str) -> Trouble:
    """Judge a line without its labels.

    >>> [trouble(text).name for text in ("step 3", "ValueError: no", "srun: error: node1: task 0: Terminated")]
    ['NONE', 'EXCEPTION', 'ENDED']
    """
    if ENDED.search(text):
        return Trouble.ENDED
    if RESULT.search(text):
        return Trouble.NONE
    if EXCEPTION.match(text):
        return Trouble.HINT if "Warning" in text.partition(":")[0] else Trouble.EXCEPTION
    if HARD.search(text):
        return Trouble.HARD
    if ERROR.search(text):
        return Trouble.ERROR
    return Trouble.HINT if SOFT.search(text) else Trouble.NONE
