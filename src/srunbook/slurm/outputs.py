"""The files that a job writes its output to: they may have any name, in any folder."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath

from srunbook._files import read_blocks
from srunbook.slurm.accounting import DELIMITER, Run, leading_number, parse_sacct_columns, run_here
from srunbook.slurm.hostlist import SlurmParseError, expand_hostlist

COLUMNS = ("JobID", "JobIDRaw", "JobName", "User", "NodeList", "SubmitLine", "WorkDir")
RECORD = re.compile(
    r"JobId=([0-9]+)(?: ArrayJobId=([0-9]+) ArrayTaskId=([0-9]+)(?= )| HetJobId=([0-9]+) HetJobOffset=([0-9]+))?"
)
"""The beginning of a record of `scontrol show job`, before anything that a user wrote."""

FIELD = re.compile(r"%(?:(%)|([0-9]{0,2})([A-Za-z]))")
Head = Callable[[str], Sequence[str]]
"""Returns the first lines of a script, given its path; none where it is no regular file or cannot be read."""


@dataclass(frozen=True)
class OutputFiles:
    """Absolute paths of the files that a job writes to; they are the same unless the script asks for two files."""

    output: str
    errors: str


def head_here(path: str) -> list[str]:
    """Return the first lines of a script on this machine, none where it is no file or cannot be read."""
    try:
        return next(read_blocks(Path(path)), b"").decode("utf-8", errors="replace").splitlines()
    except (OSError, ValueError):
        return []


def ask_outputs(job: str, run: Run = run_here, head: Head = head_here) -> dict[str, OutputFiles]:
    """Ask Slurm for the output files of a job.

    For some minutes after the job's end, `scontrol` knows their paths. After that, `sacct` knows the patterns on Slurm
    24.05 and later; on earlier versions, it knows the command line and submission folder, which lead to the script with
    the patterns.

    Args:
        job: Number of the job, or of an element or component. For a component, this finds the files of all components.
        run: A function that runs a Slurm command.
        head: A function that reads the beginning of a script.

    Returns:
        The files of each part by its number, such as `56_3` and `56+1`, and by the number that Slurm gave it. Empty if
        Slurm does not answer or does not know the job.
    """
    job = leading_number(job) if "+" in job else job
    try:
        shown = run(["scontrol", "show", "job", job]).stdout
    except OSError:
        shown = ""
    if files := dict(_of_scontrol(shown)):
        return files
    rows = _ask_rows(job, run, "StdOut", "StdErr") or _ask_rows(job, run)
    jobs = [row for row in rows if "." not in row["JobID"] and row["WorkDir"]]
    return {number: _files(row, head) for row in jobs for number in (row["JobID"], row["JobIDRaw"])}


def _of_scontrol(text: str) -> Iterator[tuple[str, OutputFiles]]:
    """Yield numbers and files of each record of `scontrol show job`."""
    for record in re.split(r"\n(?=JobId=[0-9])", text):
        number = RECORD.match(record)
        # What a user wrote, such as the name of a folder, comes before these lines.
        output, errors = (re.findall(rf"^   {name}=(/.*)$", record, re.MULTILINE)[-1:] for name in ("StdOut", "StdErr"))
        if number and output:
            # Slurm 24.11 leaves some fields as they were written; 22.05 leaves more, and %b it never replaces.
            host = re.findall(r"^   BatchHost=(\S+)$", record, re.MULTILINE)
            values = _values(number[1], number[2] or number[1], number[3] or "", "".join(host))
            del values["b"]
            files = OutputFiles(*(expand_pattern(path, values) for path in (output[0], (errors or output)[0])))
            yield number[1], files
            if number[2]:
                yield f"{number[2]}_{number[3]}", files
            if number[4]:
                yield f"{number[4]}+{number[5]}", files


def _values(job: str, leader: str, index: str, host: str) -> dict[str, str]:
    """Return what replaces each letter in the names of a job's files, as Slurm does; %b came after 22.05."""
    index = index or "4294967294"  # of a job that is no array
    step = {"J": job, "s": "batch", "n": "0", "t": "0"}
    return {"j": job, "A": leader, "a": index, "b": index[-1], **step, **({"N": host} if host else {})}


def _ask_rows(job: str, run: Run, *more: str) -> list[dict[str, str]]:
    """Return the rows of a job and its steps, or none where sacct does not answer or lacks a column."""
    columns = ",".join([*more, *COLUMNS])
    try:
        done = run(["sacct", "--parsable2", f"--delimiter={DELIMITER}", f"--jobs={job}", f"--format={columns}"])
        return parse_sacct_columns(done.stdout, DELIMITER) if done.returncode == 0 else []
    except (OSError, SlurmParseError):
        return []


def _files(row: Mapping[str, str], head: Head) -> OutputFiles:
    """Return the files of a job, from its row of sacct."""
    job = row["JobIDRaw"]
    leader, _, index = row["JobID"].partition("_")
    hosts = expand_hostlist(row["NodeList"]) if " " not in row["NodeList"] else []  # and not `None assigned`
    values = _values(job, leader if index else job, index, "".join(hosts[:1])) | {"x": row["JobName"], "u": row["User"]}
    if "StdOut" not in row:  # before 24.05
        del values["b"]
    options = [] if row.get("StdOut") else _options(row, head)
    default = "slurm-%A_%a.out" if index else "slurm-%j.out"
    output = row.get("StdOut") or _pattern(options, "output") or default
    errors = row.get("StdErr") or _pattern(options, "error") or output
    return OutputFiles(*(str(PurePosixPath(row["WorkDir"], expand_pattern(name, values))) for name in (output, errors)))


def _words(line: str, *, comments: bool = False) -> list[str]:
    try:
        return shlex.split(line, comments=comments)
    except ValueError:  # a quote without its end
        return []


def _options(row: Mapping[str, str], head: Head) -> list[str]:
    """Return the options of sbatch: those of the script, and after them those of the command line, which win."""
    words = _words(row["SubmitLine"])
    for place, word in enumerate(words[1:], start=1):
        lines = [] if word.startswith("-") else head(str(PurePosixPath(row["WorkDir"], word)))
        if lines and lines[0].startswith("#!"):
            return [*_directives(lines), *words[1:place]]
    return words[1:]


def _directives(lines: Iterable[str]) -> Iterator[str]:
    """Yield the words of the `#SBATCH` lines at the head of a script, as sbatch reads them.

    >>> list(_directives(["#!/bin/bash", "#SBATCH -N 2 --output=a.out # here", "", "date", "#SBATCH -N 3"]))
    ['-N', '2', '--output=a.out']
    """
    for line in lines:
        if line.strip() and not line.startswith("#"):
            return
        if line.startswith("#SBATCH"):
            yield from _words(line.removeprefix("#SBATCH"), comments=True)


def _pattern(words: Iterable[str], option: str) -> str:
    """Return the pattern of `--output` or `--error` among options of sbatch; the last one counts.

    >>> _pattern(["--parsable", "-o", "a.out", "--output=%j.out"], "output"), _pattern(["-e%j.err"], "error")
    ('%j.out', '%j.err')
    """
    pattern = ""
    for word, following in pairwise([*words, ""]):
        if word in (f"-{option[0]}", f"--{option}"):
            pattern = following
        elif word.startswith((f"--{option}=", f"-{option[0]}")):
            pattern = word.removeprefix(f"--{option}=") if word.startswith("--") else word[2:]
    return pattern


def expand_pattern(pattern: str, values: Mapping[str, str]) -> str:
    r"""Return the file name that a pattern of `--output` stands for.

    Args:
        pattern: The pattern. After a backslash, nothing in it is replaced.
        values: What replaces a letter, such as the number of the job for `j`. Other letters stay as they are.

    >>> expand_pattern("logs/%5j_%x.out", {"j": "17", "x": "train"})
    'logs/00017_train.out'
    >>> expand_pattern("100%%-%N.out", {"j": "17"}), expand_pattern(r"\%j", {"j": "17"})
    ('100%-%N.out', '%j')
    """
    if "\\" in pattern:
        return pattern.replace("\\", "")

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return "%"
        known = values.get(match[3])
        if known is None:
            return match[0]
        return known.zfill(min(int(match[2]), 10)) if match[2] and known.isdigit() else known

    return FIELD.sub(value, pattern)
