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
    leading_number,
    parse_sacct,
    parse_sacct_columns,
    sacct_command,
    split_attempts,
)
from srunbook.slurm._errors import NotInStepError, SlurmParseError
from srunbook.slurm._hostlist import compress_hostlist, expand_hostlist
from srunbook.slurm._layout import compress_tasks, expand_tasks, parse_gpus
from srunbook.slurm._step import StepEnvironment

__all__ = [
    "SACCT_FIELDS",
    "NotInStepError",
    "SacctRow",
    "SlurmParseError",
    "StepEnvironment",
    "compress_hostlist",
    "compress_tasks",
    "expand_hostlist",
    "expand_tasks",
    "is_job_id",
    "leading_number",
    "parse_gpus",
    "parse_sacct",
    "parse_sacct_columns",
    "sacct_command",
    "split_attempts",
]
