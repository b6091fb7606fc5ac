"""Read what Slurm says: the environment of a step, host lists, task layouts, rows of sacct. Standard library only.

>>> from srunbook import slurm
>>> slurm.expand_hostlist("rack[0-1]n[01-02]-ib")
['rack0n01-ib', 'rack0n02-ib', 'rack1n01-ib', 'rack1n02-ib']
>>> slurm.expand_tasks("4(x2),3")
[4, 4, 3]
"""

from __future__ import annotations

from srunbook.slurm._accounting import (
    SACCT_FIELDS,
    SacctRow,
    is_job_id,
    is_over,
    leading_number,
    parse_sacct,
    parse_sacct_columns,
    sacct_command,
    split_attempts,
)
from srunbook.slurm._asking import Accounting, Done, Run, ask_accounting, queue_states
from srunbook.slurm._errors import NotInStepError, SlurmParseError
from srunbook.slurm._hostlist import compress_hostlist, expand_hostlist
from srunbook.slurm._layout import compress_tasks, expand_tasks, parse_gpus
from srunbook.slurm._outputs import OutputFiles, ask_outputs
from srunbook.slurm._patterns import (
    DEFAULT_OUTPUT,
    DEFAULT_OUTPUT_OF_ARRAY,
    directives,
    expand_pattern,
    output_pattern,
)
from srunbook.slurm._running import ask_sacct, run_here
from srunbook.slurm._step import StepEnvironment
from srunbook.slurm._step_outputs import ask_step_outputs

__all__ = [
    "DEFAULT_OUTPUT",
    "DEFAULT_OUTPUT_OF_ARRAY",
    "SACCT_FIELDS",
    "Accounting",
    "Done",
    "NotInStepError",
    "OutputFiles",
    "Run",
    "SacctRow",
    "SlurmParseError",
    "StepEnvironment",
    "ask_accounting",
    "ask_outputs",
    "ask_sacct",
    "ask_step_outputs",
    "compress_hostlist",
    "compress_tasks",
    "directives",
    "expand_hostlist",
    "expand_pattern",
    "expand_tasks",
    "is_job_id",
    "is_over",
    "leading_number",
    "output_pattern",
    "parse_gpus",
    "parse_sacct",
    "parse_sacct_columns",
    "queue_states",
    "run_here",
    "sacct_command",
    "split_attempts",
]
