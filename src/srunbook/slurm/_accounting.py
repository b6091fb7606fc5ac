"""Accounting: the rows that `sacct --parsable2` prints for a job and its steps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby

from srunbook.slurm._errors import SlurmParseError
from srunbook.slurm._hostlist import expand_hostlist

SACCT_FIELDS = (
    "JobID",
    "JobIDRaw",
    "State",
    "ExitCode",
    "NNodes",
    "NTasks",
    "Elapsed",
    "NodeList",
    "Partition",
    "End",
)
"""Columns to ask sacct for: `sacct --parsable2 --format=JobID,JobIDRaw,...`. Users write no text into any of these."""

REQUIRED = ("JobID", "State", "ExitCode")
JOB_ID = re.compile(r"([1-9][0-9]{0,9})(?:[_+](?:0|[1-9][0-9]{0,9}))?")
ROW_ID = re.compile(r"([0-9]+(?:[_+][0-9]+|_\[[0-9,:%.-]+\])?)(?:\.([\w+]+))?", re.ASCII)
STATE = re.compile(r"\S+|CANCELLED by \S+")
EXAMPLE = "17.0|17.0|COMPLETED|0:0|2|2|00:01:30|node[1-2]"
NOT_ENDED = (
    "PENDING",
    "RUNNING",
    "REQUEUED",
    "RESIZING",
    "SUSPENDED",
    "COMPLETING",
    "CONFIGURING",
    "SIGNALING",
    "STAGE_OUT",
    "STOPPED",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "RESV_DEL_HOLD",
    "SPECIAL_EXIT",
)


@dataclass(frozen=True)
class SacctRow:
    """One row of sacct: a job, or one of its steps.

    Args:
        job_id: Number of the job; of an element of an array with its index, `56_3`, or `56_[4-9%2]` for those that
            still wait; of a component of a heterogeneous job with its offset, `56+1`.
        step: Name of the step: `batch`, `extern`, `0`, `1`, ...; empty for the job itself.
        name: Name of the job or of the step's program; empty where it was not asked for.
        state: State in one word, such as COMPLETED or CANCELLED.
        exit_code: Exit status.
        signal: Signal that ended it, or 0.
        nodes: Number of nodes, or None where the row does not say.
        tasks: Number of tasks, or None where the row does not say.
        elapsed: Time as Slurm writes it: `[days-]hours:minutes:seconds`.
        node_list: Host list of its nodes; empty where there are none yet.
        raw_id: Number that Slurm gave the element or component, as in SLURM_JOB_ID; empty where it was not asked for.
        columns: Text of each column as sacct printed it.
    """

    job_id: str
    step: str
    name: str
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
    def ended(self) -> bool:
        """Tell whether the row is of something that is over and does not begin again."""
        return is_over(self.state)

    @property
    def settled(self) -> bool:
        """Tell whether accounting has heard of the start as well as of the end.

        A busy controller may report the end first. Until the start arrives, the row lacks the partition, the end or
        some of the nodes, and sacct calls the job `allocation`.
        """
        if "" in (self.columns.get("Partition") if not self.step else None, self.columns.get("End")):
            return False
        if self.columns.get("End") == "Unknown":
            return False
        try:
            return self.step != "" or not self.node_list or self.nodes in (None, len(self.hosts))
        except SlurmParseError:
            return True  # later it will not read better

    @property
    def hosts(self) -> list[str]:
        """Return the names of its nodes."""
        return expand_hostlist(self.node_list)


def is_over(state: str) -> bool:
    """Tell whether a state, as sacct and squeue name it, is that of a job that has ended and does not begin again.

    >>> [is_over(state) for state in ("COMPLETED", "PREEMPTED", "COMPLETING", "PENDING")]
    [True, True, False, False]
    """
    return state not in NOT_ENDED


def is_job_id(text: str) -> bool:
    """Tell whether a text is the number of a job, of an element of an array, or of a component.

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


def sacct_command(
    job: str, columns: Sequence[str] = SACCT_FIELDS, *, duplicates: bool = False, delimiter: str = "|"
) -> list[str]:
    """Return the command whose output `parse_sacct` and `parse_sacct_columns` read.

    Args:
        job: Number of the job.
        columns: Names of the columns.
        duplicates: Whether to show all attempts of a job that was requeued, and not the last one alone.
        delimiter: What separates two columns. To ask for text that a user wrote, such as JobName or WorkDir, take one
            that the user cannot guess: otherwise that text can hold columns and whole rows of its own.

    >>> " ".join(sacct_command("17", ["JobID", "State"], duplicates=True))
    'sacct --parsable2 --duplicates --jobs=17 --format=JobID,State'
    """
    more = ["--duplicates"] if duplicates else []
    more += [] if delimiter == "|" else [f"--delimiter={delimiter}"]
    return ["sacct", "--parsable2", *more, f"--jobs={job}", f"--format={','.join(columns)}"]


def parse_sacct_columns(text: str, delimiter: str = "|") -> list[dict[str, str]]:
    r"""Read the output of `sacct --parsable2`, with its header line, into the text of each column.

    A line break in a text does not end its row, except in the last column.

    Args:
        text: The output, with any columns in any order.
        delimiter: What separates two columns, as given to `sacct_command`.

    Returns:
        A dictionary of column name to text for each row, in the order of the output. Empty where sacct knows no such
        job, or said nothing.

    Raises:
        SlurmParseError: A row has too few columns, or too many.

    >>> parse_sacct_columns("JobID@7f@JobName@7f@State\n17@7f@a|b\nc@7f@FAILED\n", "@7f@")
    [{'JobID': '17', 'JobName': 'a|b\nc', 'State': 'FAILED'}]
    """
    header, _, rest = text.partition("\n")
    names = header.split(delimiter)
    rows: list[dict[str, str]] = []
    held: list[str] = []
    found = 0
    for line in rest.split("\n"):  # and not splitlines: a text may hold other separators
        if not held and not line:
            continue
        held.append(line)
        found += line.count(delimiter)
        if found >= len(names) - 1:
            rows.append(_columns(names, "\n".join(held), delimiter))
            held, found = [], 0
    if held:
        _columns(names, "\n".join(held), delimiter)
    return rows


def _columns(names: Sequence[str], row: str, delimiter: str) -> dict[str, str]:
    values = row.split(delimiter)
    if len(values) != len(names):
        raise _refusal(row.rstrip("\n"), f"{len(values)} columns under a header of {len(names)}")
    return dict(zip(names, values, strict=True))


def _refusal(row: str, problem: str) -> SlurmParseError:
    return SlurmParseError("row of sacct", row, 0, problem, EXAMPLE)


def parse_sacct(text: str, delimiter: str = "|") -> list[SacctRow]:
    r"""Read the output of `sacct --parsable2`, with its header line.

    Args:
        text: The output. The columns JobID, State and ExitCode have to be in it; their order does not matter.
        delimiter: What separates two columns, as given to `sacct_command`.

    Returns:
        The rows, in the order of the output. Empty where sacct knows no such job, or said nothing.

    Raises:
        SlurmParseError: The header lacks a column, a row has another form, a step comes before its job, or the last row
            has no line break: the output was cut there, and rows may be missing.

    >>> rows = parse_sacct("JobID|State|ExitCode|NTasks\n17|CANCELLED by 20001|0:0|\n17.0|FAILED|3:0|2\n")
    >>> [(row.identity, row.state, row.exit_code, row.tasks) for row in rows]
    [('17', 'CANCELLED', 0, None), ('17.0', 'FAILED', 3, 2)]
    """
    header = text.partition("\n")[0]
    if not header:
        return []
    names = header.split(delimiter)
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise SlurmParseError("header of sacct", header, 0, f"no column {missing[0]}", "|".join(SACCT_FIELDS))
    if not text.endswith("\n"):
        raise _refusal(text.rpartition("\n")[2], "it breaks off without a line break")
    rows = [_row(columns) for columns in parse_sacct_columns(text, delimiter)]
    jobs: set[str] = set()
    for row in rows:
        if not row.step:
            jobs.add(row.job_id)
        elif row.job_id not in jobs:
            raise _refusal(row.identity, "a step without a row of its job before it")
    return rows


def _row(row: dict[str, str]) -> SacctRow:
    line = "|".join(row.values())
    identity = ROW_ID.fullmatch(row["JobID"])
    unsaid = "" if row["State"] == "COMPLETED" else "0:0"  # steps of a dead node have none
    code = re.fullmatch(r"([0-9]{1,9}):([0-9]{1,9})", row["ExitCode"] or unsaid)
    if not identity:
        raise _refusal(line, f"{row['JobID']!r} is no job id")
    if not code:
        raise _refusal(line, f"{row['ExitCode']!r} is no exit code")
    if not row["State"].strip():
        raise _refusal(line, "no state")
    if not STATE.fullmatch(row["State"]):
        raise _refusal(line, f"{row['State'][:60]!r} is no state")
    node_list = row.get("NodeList", "")
    return SacctRow(
        job_id=identity[1],
        step=identity[2] or "",
        name=row.get("JobName", ""),
        state=row["State"].split()[0],
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
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def split_attempts(rows: Sequence[SacctRow]) -> list[list[SacctRow]]:
    r"""Split the rows of one job, element or component into its attempts: one that was requeued has several.

    Args:
        rows: Its rows in the order of `sacct --duplicates`.

    Returns:
        The rows of each attempt, the last one last. Each begins with the job's own row.

    >>> rows = parse_sacct("JobID|State|ExitCode\n9|REQUEUED|0:0\n9.0|CANCELLED|0:15\n9|COMPLETED|0:0\n")
    >>> [[row.identity for row in attempt] for attempt in split_attempts(rows)]
    [['9', '9.0'], ['9']]
    """
    numbers = accumulate(not row.step for row in rows)
    numbered = zip(numbers, rows, strict=True)
    return [[row for _, row in group] for _, group in groupby(numbered, key=lambda pair: pair[0])]
