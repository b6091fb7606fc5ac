"""The files that `srun --output=%j_%t.out` writes: one for each task or node of a step."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from itertools import islice, pairwise, product
from pathlib import PurePosixPath

from srunbook.slurm._accounting import leading_number, parse_sacct_columns, sacct_command
from srunbook.slurm._asking import Run
from srunbook.slurm._errors import SlurmParseError
from srunbook.slurm._hostlist import expand_hostlist
from srunbook.slurm._outputs import ask_slurm
from srunbook.slurm._patterns import expand_pattern, output_pattern
from srunbook.slurm._running import run_here

COLUMNS = ("JobID", "JobIDRaw", "JobName", "User", "NodeList", "NTasks", "WorkDir", "SubmitLine")
MOST_FILES = 100_000


def ask_step_outputs(job: str, run: Run = run_here) -> list[str]:
    """Ask accounting for the files that the steps of a job write to beside the log of the job.

    Only names with a field such as `%j` or `%t` are found: another `-o` in the line may be that of the program.

    Args:
        job: Number of the job, or of an element or component.
        run: Runs a command of Slurm; on this machine by default.

    Returns:
        Absolute paths, each once; nothing where nobody answers. Not all need to exist.
    """
    job = leading_number(job) if "+" in job else job
    delimiter = f"|{os.urandom(16).hex()}|"  # users write the names and folders of their jobs
    done = ask_slurm(sacct_command(job, COLUMNS, delimiter=delimiter), run)
    if done is None or done.returncode != 0:
        return []
    try:
        rows = parse_sacct_columns(done.stdout, delimiter)
    except SlurmParseError:
        return []
    known = [row for row in rows if row.keys() >= {*COLUMNS}]
    jobs = {row["JobID"]: row for row in known if "." not in row["JobID"]}
    steps = [(jobs[row["JobID"].partition(".")[0]], row) for row in known if row["JobID"].partition(".")[0] in jobs]
    paths = (path for leader, row in steps if "." in row["JobID"] for path in _paths(leader, row))
    return list(dict.fromkeys(islice(paths, MOST_FILES)))


def _paths(leader: Mapping[str, str], row: Mapping[str, str]) -> Iterator[str]:
    """Yield the files of a step, whose job's row tells the names that both share."""
    try:
        words = shlex.split(row["SubmitLine"])
        hosts = expand_hostlist(row["NodeList"])
    except (ValueError, SlurmParseError):
        return
    raw, index = leader["JobIDRaw"], leader["JobID"].partition("_")[2]
    step = row["JobID"].partition(".")[2]
    values = {"j": raw, "A": leading_number(leader["JobID"]), "x": leader["JobName"], "u": leader["User"], "s": step}
    values |= {"J": f"{raw}.{step}"} | ({"a": index} if index else {})
    tasks = int(row["NTasks"]) if row["NTasks"].isdecimal() else 1
    for option in ("output", "error"):
        named = (output_pattern(pair, option) for pair in pairwise([*words, ""]))
        pattern = next((name for name in named if name and "%" in name), "")
        ranges = {"t": range(tasks), "n": range(len(hosts)), "N": hosts}
        varied = {letter: list(map(str, place)) for letter, place in ranges.items() if letter in pattern}
        for chosen in product(*varied.values()) if pattern else ():
            name = expand_pattern(pattern, values | dict(zip(varied, chosen, strict=True)))
            yield str(PurePosixPath(leader["WorkDir"], name))
