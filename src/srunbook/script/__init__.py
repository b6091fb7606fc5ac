r"""A job script as data: the directives as sbatch reads them, the shell's syntax, and edits that keep every other byte.

>>> from srunbook import script
>>> job = script.parse(b"#!/bin/bash\n#SBATCH -p gpu --nodes=2  # two of them\nsrun hostname\n")
>>> [(option.name, option.value, option.line) for option in job.options]
[('partition', 'gpu', 2), ('nodes', '2', 2)]
>>> script.apply(job.data, [script.set_value(job.options[0], "batch")])
b'#!/bin/bash\n#SBATCH -p batch --nodes=2  # two of them\nsrun hostname\n'
"""

from __future__ import annotations

from srunbook.script.directives import (
    GENERATIONS,
    DirectiveLine,
    Option,
    Script,
    ScriptError,
    Table,
    Word,
    parse,
    table,
)
from srunbook.script.edits import Edit, add_directive, apply, directive, remove, set_value
from srunbook.script.shell import Assignment, Command, Shell, ShellWord, read_shell

__all__ = [
    "GENERATIONS",
    "Assignment",
    "Command",
    "DirectiveLine",
    "Edit",
    "Option",
    "Script",
    "ScriptError",
    "Shell",
    "ShellWord",
    "Table",
    "Word",
    "add_directive",
    "apply",
    "directive",
    "parse",
    "read_shell",
    "remove",
    "set_value",
    "table",
]
