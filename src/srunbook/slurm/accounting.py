"""Accounting: ask sacct and squeue about a job, and read the rows that they print for it and its steps."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from srunbook.slurm.hostlist import SlurmParseError, expand_hostlist

SACCT_FIELDS = (
    "JobID", "JobIDRaw", "State", "ExitCode", "NNodes", "NTasks", "Elapsed", "NodeList", "Partition", "End",
)  # fmt: skip
"""Columns to ask sacct for: `sacct --parsable2 --format=JobID,JobIDRaw,...`. Users write no text into any of these."""

DELIMITER = "|~|"
"""Separates columns where users wrote some: the name of a job may hold a bar."""

JOB_ID = re.compile(r"([1-9][0-9]{0,9})(?:[_+](?:0|[1-9][0-9]{0,9}))?")
ROW_ID = re.compile(r"([0-9]+(?:[_+][0-9]+|_\[[^]]*\])?)(?:\.(\S+))?")
NOT_ENDED = (
    "PENDING", "RUNNING", "REQUEUED", "RESIZING", "SUSPENDED", "COMPLETING", "CONFIGURING", "SIGNALING", "STAGE_OUT",
    "STOPPED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT",
)  # fmt: skip
LAG = 10.0
"""Seconds by which accounting may lag the end of a job before it is believed."""

PAUSE = 0.3
"""Seconds between two questions."""

Run = Callable[[list[str]], subprocess.CompletedProcess[str]]
"""A function that runs a Slurm command, on this machine or another one; it raises OSError if it cannot."""


@dataclass(frozen=True)
class SacctRow:
    """One row of sacct: a job, or one of its steps.

    Args:
        job_id: Number of the job; for an element of an array, with its index, as in `56_3`, or `56_[4-9%2]` for
            elements that still wait; for a component of a heterogeneous job, with its offset, as in `56+1`.
        step: Name of the step: `batch`, `extern`, `0`, `1`, ...; empty for the job itself.
        state: State in one word, such as COMPLETED or CANCELLED.
        signal: Signal that ended it, or 0.
        elapsed: Time as Slurm writes it: `[days-]hours:minutes:seconds`.
        node_list: Host list of its nodes; empty if it has none yet.
        raw_id: Number that Slurm gave the element or component, as in SLURM_JOB_ID; empty if sacct was not asked for
            it.
        columns: Text of each column as sacct printed it.
    """

    job_id: str
    step: str
    state: str
    exit_code: int
    signal: int
    nodes: int | None = None
    tasks: int | None = None
    elapsed: str = ""
    node_list: str = ""
    raw_id: str = ""
    columns: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def identity(self) -> str:
        """Return the number as Slurm writes it, such as `17.batch`."""
        return f"{self.job_id}.{self.step}" if self.step else self.job_id

    @property
    def ending(self) -> str:
        """Return the state, the exit status and the signal, in the words of sacct."""
        return f"{self.state} {self.exit_code}:{self.signal}"

    @property
    def ended(self) -> bool:
        """Return whether the job or step has ended and will not start again."""
        return is_over(self.state)

    @property
    def settled(self) -> bool:
        """Return whether accounting has heard of the start as well as of the end.

        A busy controller may report the end first. Until the start arrives, the row lacks the partition, the end or
        some of the nodes.
        """
        if self.columns.get("End") in ("", "Unknown") or (not self.step and self.columns.get("Partition") == ""):
            return False
        return self.step != "" or not self.node_list or self.nodes in (None, len(self.hosts))

    @property
    def hosts(self) -> list[str]:
        """Return the names of its nodes."""
        return expand_hostlist(self.node_list)


def is_over(state: str) -> bool:
    """Return whether a job in this state, as sacct and squeue write it, has ended and will not start again.

    >>> [is_over(state) for state in ("COMPLETED", "PREEMPTED", "COMPLETING", "PENDING")]
    [True, True, False, False]
    """
    return state not in NOT_ENDED


def is_job_id(text: str) -> bool:
    """Return whether a text is the number of a job, of an element of an array, or of a component.

    >>> [is_job_id(text) for text in ("17", "56_3", "56+1", "017", "56_", "17.0")]
    [True, True, True, False, False, False]
    """
    return JOB_ID.fullmatch(text) is not None


def leading_number(job_id: str) -> str:
    """Return the number of the job that an element or a component belongs to.

    >>> [leading_number(text) for text in ("17", "56_3", "56_[4-9%2]", "56+1")]
    ['17', '56', '56', '56']
    """
    return re.split(r"[_+]", job_id, maxsplit=1)[0]


def parse_sacct_columns(text: str, delimiter: str = "|") -> list[dict[str, str]]:
    r"""Read the output of `sacct --parsable2`, with its header line, into the text of each column.

    A line break in a text, such as a script given with `--wrap`, does not end its row, except in the last column.

    >>> parse_sacct_columns("JobID|~|JobName|~|State\n17|~|a|b\nc|~|FAILED\n", "|~|")
    [{'JobID': '17', 'JobName': 'a|b\nc', 'State': 'FAILED'}]
    """
    header, _, rest = text.partition("\n")
    names = header.split(delimiter)
    rows: list[dict[str, str]] = []
    held = ""
    for line in rest.split("\n"):  # and not splitlines: a text may hold other separators
        if not line and not held:
            continue
        held += line
        values = held.split(delimiter)
        if len(values) == len(names):
            rows.append(dict(zip(names, values, strict=True)))
            held = ""
        elif len(values) > len(names):
            break
        else:
            held += "\n"
    if held:
        raise _refusal(held.rstrip("\n"), f"{held.count(delimiter) + 1} columns under a header of {len(names)}")
    return rows


def _refusal(row: str, problem: str) -> SlurmParseError:
    return SlurmParseError("row of sacct", row, problem, "17.0|17.0|COMPLETED|0:0|2|2|00:01:30|node[1-2]")


def parse_sacct(text: str, delimiter: str = "|") -> list[SacctRow]:
    r"""Read the output of `sacct --parsable2`, with its header line.

    Args:
        text: The output, with at least the columns JobID, State and ExitCode.
        delimiter: What separates two columns.

    Returns:
        The rows, in the order of the output. Empty if sacct knows no such job or printed nothing.

    Raises:
        SlurmParseError: A row has a different form.

    >>> rows = parse_sacct("JobID|State|ExitCode|NTasks\n17|CANCELLED by 20001|0:0|\n17.0|FAILED|3:0|2\n")
    >>> [(row.identity, row.state, row.exit_code, row.tasks) for row in rows]
    [('17', 'CANCELLED', 0, None), ('17.0', 'FAILED', 3, 2)]
    """
    return [_row(columns) for columns in parse_sacct_columns(text, delimiter)]


def _row(row: dict[str, str]) -> SacctRow:
    identity = ROW_ID.fullmatch(row["JobID"])
    code = re.fullmatch("([0-9]+):([0-9]+)", row["ExitCode"] or "0:0")  # steps of a dead node have none
    if not (identity and code):
        raise _refusal("|".join(row.values()), f"{row['JobID']!r} is no job id, or {row['ExitCode']!r} no exit code")
    node_list = row.get("NodeList", "")
    return SacctRow(
        job_id=identity[1],
        step=identity[2] or "",
        state=row["State"].partition(" ")[0],  # `CANCELLED by 20001`
        exit_code=int(code[1]),
        signal=int(code[2]),
        nodes=_count(row.get("NNodes", "")),
        tasks=_count(row.get("NTasks", "")),
        elapsed=row.get("Elapsed", ""),
        node_list="" if " " in node_list else node_list,  # `None assigned`
        raw_id=row.get("JobIDRaw", "").partition(".")[0],
        columns=row,
    )


def _count(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


@dataclass(frozen=True)
class Accounting:
    """What accounting says about a job.

    Args:
        rows: Rows of the job and its steps, of all its attempts, elements and components.
        problem: Why Slurm could not be asked or its answer not understood; otherwise empty.
        queued: State in squeue of a job that accounting does not know yet; empty for others.
    """

    rows: tuple[SacctRow, ...] = ()
    problem: str = ""
    queued: str = ""

    @property
    def text(self) -> str:
        """Return the rows as sacct prints them, with a header line."""
        lines = [[*row.columns] for row in self.rows[:1]] + [[*row.columns.values()] for row in self.rows]
        return "".join("|".join(line) + "\n" for line in lines)

    @cached_property
    def parts(self) -> dict[str, Accounting]:
        """Return the accounting of the job, or of each element of an array or component of a heterogeneous job."""
        numbers = dict.fromkeys(row.job_id for row in self.rows)
        return {part: replace(self, rows=tuple(row for row in self.rows if row.job_id == part)) for part in numbers}

    @property
    def attempts(self) -> list[list[SacctRow]]:
        """Return the rows of each attempt, from first to last. A requeued job has several attempts."""
        attempts: list[list[SacctRow]] = []
        for row in self.rows:
            if not row.step or not attempts:
                attempts.append([])
            attempts[-1].append(row)
        return attempts

    @cached_property
    def last(self) -> list[SacctRow]:
        """Return the rows of each part's last attempt; empty if there is none."""
        return [row for part in self.parts.values() for row in part.attempts[-1]]

    @property
    def final(self) -> bool:
        """Return whether the last attempt and all its steps have ended."""
        return bool(self.rows) and all(row.ended for row in self.last)

    def of(self, job: str) -> Accounting:
        """Return the accounting of one job, of one of its parts, or of the part to which Slurm gave this number."""
        parts = [part for part in self.parts if job in (part, leading_number(part))]
        parts = parts or [part for part, accounting in self.parts.items() if accounting.rows[0].raw_id == job]
        return replace(self, rows=tuple(row for row in self.rows if row.job_id in parts))


def run_here(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm on this machine.

    Raises:
        OSError: There is no such command, it did not answer within a minute, or several clusters would be asked.
    """
    clusters = os.environ.get("SLURM_CLUSTERS", "")
    if "," in clusters or clusters == "all":
        raise OSError(f"SLURM_CLUSTERS={clusters}: each of these may have a job of this number; name one cluster")
    environ = {**os.environ, "LC_ALL": "C"}
    try:
        return subprocess.run(
            command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=60
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(str(error)) from None


def ask_accounting(job: str, run: Run = run_here, *, more: Sequence[str] = (), patience: float = LAG) -> Accounting:
    """Ask sacct about a job, and all its attempts if it was requeued.

    Accounting lags behind the end of a job. If a job has left the queue but its rows are not final, this asks again. It
    returns at once for a job that waits or runs, and for a job that neither squeue nor sacct knows.

    Args:
        job: Number of the job, of an element of an array or of a component of a heterogeneous job. For a component,
            accounting lists all components.
        run: A function that runs a Slurm command; by default, on this machine.
        more: Columns to ask for besides `SACCT_FIELDS`. Users may have written into them.
        patience: Seconds to wait until the rows are final.

    Returns:
        What accounting says; if Slurm could not be asked, `problem` says why.
    """
    deadline = time.monotonic() + patience
    whole = leading_number(job) if "+" in job else job
    while True:
        accounting = _ask_once(whole, run, more)
        if accounting.problem or (accounting.final and all(row.settled for row in accounting.last)):
            return accounting
        states = queue_states(whole, run) or {}
        queued = next((state for state in states.values() if not is_over(state) and state != "COMPLETING"), "")
        if (queued and not accounting.final) or not (accounting.rows or states) or time.monotonic() > deadline:
            return accounting if accounting.rows else Accounting(queued=queued)
        time.sleep(PAUSE)


def _ask_once(job: str, run: Run, more: Sequence[str]) -> Accounting:
    delimiter = DELIMITER if more else "|"
    columns = ",".join([*more, *SACCT_FIELDS])
    command = ["sacct", "--parsable2", f"--jobs={job}", f"--format={columns}", "--duplicates"]
    try:
        done = run([*command, f"--delimiter={delimiter}"] if more else command)
        if done.returncode == 0:
            return Accounting(tuple(parse_sacct(done.stdout, delimiter)))
    except FileNotFoundError:
        return Accounting(problem="this machine has no sacct")
    except OSError as error:
        return Accounting(problem=f"sacct: {error}")
    except SlurmParseError as error:
        return Accounting(problem=str(error))
    words = done.stderr.strip().splitlines() or [f"sacct ended with status {done.returncode}"]
    return Accounting(problem=words[-1])


def queue_states(job: str, run: Run) -> dict[str, str] | None:
    """Return the state of each part of a job in squeue, which keeps ended parts for some minutes.

    Returns:
        States by number, such as `56_3`; empty for a job that squeue does not know, None if squeue does not answer.
    """
    try:
        done = run(["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%i %T"])
    except OSError:
        return None
    if done.returncode != 0:
        return {} if "Invalid job id" in done.stderr else None
    pairs = (line.split() for line in done.stdout.splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
