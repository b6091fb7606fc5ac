"""Read what Slurm says: a step's environment, host lists, task layouts and rows of sacct. Standard library only.

>>> from srunbook import slurm
>>> slurm.expand_hostlist("rack[0-1]n[01-02]-ib")
['rack0n01-ib', 'rack0n02-ib', 'rack1n01-ib', 'rack1n02-ib']
>>> slurm.expand_tasks("4(x2),3")
[4, 4, 3]
"""

from __future__ import annotations

from srunbook.slurm.accounting import (
    Accounting,
    Run,
    SacctRow,
    ask_accounting,
    is_job_id,
    is_over,
    leading_number,
    parse_sacct,
    queue_states,
    run_here,
)
from srunbook.slurm.hostlist import (
    SlurmParseError,
    compress_hostlist,
    compress_tasks,
    expand_hostlist,
    expand_tasks,
    parse_gpus,
)
from srunbook.slurm.outputs import OutputFiles, ask_outputs, expand_pattern
from srunbook.slurm.step import NotInStepError, StepEnvironment

__all__ = [
    "Accounting",
    "NotInStepError",
    "OutputFiles",
    "Run",
    "SacctRow",
    "SlurmParseError",
    "StepEnvironment",
    "ask_accounting",
    "ask_outputs",
    "compress_hostlist",
    "compress_tasks",
    "expand_hostlist",
    "expand_pattern",
    "expand_tasks",
    "is_job_id",
    "is_over",
    "leading_number",
    "parse_gpus",
    "parse_sacct",
    "queue_states",
    "run_here",
]
