"""The files that a job writes its output to: they may have any name, in any folder."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from srunbook.slurm._accounting import leading_number, parse_sacct_columns, sacct_command
from srunbook.slurm._asking import Done, Run
from srunbook.slurm._errors import SlurmParseError
from srunbook.slurm._hostlist import expand_hostlist
from srunbook.slurm._patterns import (
    DEFAULT_OUTPUT,
    DEFAULT_OUTPUT_OF_ARRAY,
    directives,
    expand_pattern,
    output_pattern,
)
from srunbook.slurm._running import head_here, run_here

COLUMNS = ("JobID", "JobIDRaw", "JobName", "User", "NodeList", "WorkDir", "SubmitLine")
RECORD = re.compile(
    r"JobId=([0-9]+)(?: ArrayJobId=([0-9]+) ArrayTaskId=([0-9]+)(?= )| HetJobId=([0-9]+) HetJobOffset=([0-9]+))?"
)
"""The beginning of a record of `scontrol show job`, before anything that a user wrote."""

Head = Callable[[str], Sequence[str]]
"""Returns the first lines of a script, given its path; none where it is no regular file or cannot be read."""


@dataclass(frozen=True)
class OutputFiles:
    """Absolute paths of the files that a job writes to.

    Args:
        output: That of its standard output.
        errors: That of its standard error; the same one where the script asks for no other.
    """

    output: str
    errors: str


def ask_outputs(job: str, run: Run = run_here, head: Head = head_here) -> dict[str, OutputFiles]:
    """Ask Slurm for the output files of a job.

    For some minutes after the end `scontrol` knows their paths. After that, `sacct` knows the patterns, on Slurm
    24.05 and later, or else the command line and the folder of submission, where the script is that names them.

    Args:
        job: Number of the job, or of an element or component. Of the latter, this finds those of all components.
        run: Runs a command of Slurm; on this machine by default.
        head: Reads the beginning of a script; on this machine by default.

    Returns:
        The files of each part by its number, such as `56_3` and `56+1`, and by the one that Slurm gave it. Nothing
        where nobody answers or Slurm does not know the job.
    """
    job = leading_number(job) if "+" in job else job
    shown = ask_slurm(["scontrol", "show", "job", job], run)
    found = dict(_of_scontrol(shown.stdout)) if shown and shown.returncode == 0 else {}
    return found or dict(_of_sacct(job, run, head))


def ask_slurm(command: list[str], run: Run) -> Done | None:
    """Run a command of Slurm; return None where that is impossible."""
    try:
        return run(command)
    except OSError:
        return None


def _of_scontrol(text: str) -> Iterator[tuple[str, OutputFiles]]:
    """Yield numbers and files of each record of `scontrol show job`."""
    for record in re.split(r"\n(?=JobId=[0-9])", text):
        number = RECORD.match(record)
        # What a user wrote, such as the name of a folder, comes before these lines.
        output, errors = (re.findall(rf"^   {name}=(/.*)$", record, re.MULTILINE)[-1:] for name in ("StdOut", "StdErr"))
        if number and output:
            files = OutputFiles(output[0], (errors or output)[0])
            yield number[1], files
            if number[2]:
                yield f"{number[2]}_{number[3]}", files
            if number[4]:
                yield f"{number[4]}+{number[5]}", files


def _of_sacct(job: str, run: Run, head: Head) -> Iterator[tuple[str, OutputFiles]]:
    delimiter = f"|{os.urandom(16).hex()}|"  # users write the names and folders of their jobs
    for columns in ([*COLUMNS, "StdOut", "StdErr"], COLUMNS):
        done = ask_slurm(sacct_command(job, columns, delimiter=delimiter), run)
        if done and done.returncode == 0:
            break
    else:
        return
    try:
        rows = parse_sacct_columns(done.stdout, delimiter)
    except SlurmParseError:
        return
    for row in rows:
        if row.keys() >= {*COLUMNS} and "." not in row["JobID"] and row["WorkDir"]:
            files = _files(row, head)
            yield row["JobID"], files
            yield row["JobIDRaw"], files


def _files(row: dict[str, str], head: Head) -> OutputFiles:
    """Return the files of a job, from its row of sacct."""
    identity, raw = row["JobID"], row["JobIDRaw"]
    index = identity.partition("_")[2]
    values = {"j": raw, "A": leading_number(identity) if index else raw, "x": row["JobName"], "u": row["User"]}
    values |= {"a": index} if index else {}
    with contextlib.suppress(SlurmParseError, IndexError):
        values["N"] = expand_hostlist(row["NodeList"])[0]
    options = [] if row.get("StdOut") else _options(row, head)
    default = DEFAULT_OUTPUT_OF_ARRAY if index else DEFAULT_OUTPUT
    output = row.get("StdOut") or output_pattern(options) or default
    errors = row.get("StdErr") or output_pattern(options, "error") or output
    names = (expand_pattern(pattern, values) for pattern in (output, errors))
    return OutputFiles(*(str(PurePosixPath(row["WorkDir"], name)) for name in names))


def _options(row: dict[str, str], head: Head) -> list[str]:
    """Return the options of sbatch: those of the script, and after them those of the command line, which win."""
    try:
        words = shlex.split(row["SubmitLine"])
    except ValueError:
        return []
    for place, word in enumerate(words[1:], start=1):
        lines = [] if word.startswith("-") else head(str(PurePosixPath(row["WorkDir"], word)))
        if lines and lines[0].startswith("#!"):
            return [*directives(lines), *words[1:place]]
    return words[1:]
