"""Accounting: the rows that `sacct --parsable2` prints for a job and its steps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from srunbook.slurm._errors import SlurmParseError
from srunbook.slurm._hostlist import expand_hostlist

SACCT_FIELDS = ("JobID", "JobName", "State", "ExitCode", "NNodes", "NTasks", "Elapsed", "NodeList")
"""Columns to ask sacct for: `sacct --parsable2 --format=JobID,JobName,...`."""

REQUIRED = ("JobID", "State", "ExitCode")
ROW_START = re.compile(r"[0-9][0-9_+]*(\.[\w+]+)?\|", re.ASCII)
EXAMPLE = "17.0|python|COMPLETED|0:0|2|2|00:01:30|node[1-2]"
NOT_ENDED = ("PENDING", "RUNNING", "REQUEUED", "RESIZING", "SUSPENDED", "COMPLETING", "CONFIGURING")


@dataclass(frozen=True)
class SacctRow:
    """One row of sacct: a job, or one of its steps.

    Args:
        job_id: Number of the job.
        step: Name of the step: `batch`, `extern`, `0`, `1`, ...; empty for the job itself.
        name: Name of the job or of the step's program.
        state: State in one word, such as COMPLETED or CANCELLED.
        exit_code: Exit status.
        signal: Signal that ended it, or 0.
        nodes: Number of nodes, or None where the row does not say.
        tasks: Number of tasks, or None where the row does not say.
        elapsed: Time as Slurm writes it: `[days-]hours:minutes:seconds`.
        node_list: Host list of its nodes; empty where there are none yet.
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

    @property
    def identity(self) -> str:
        """Return the number as Slurm writes it, such as `17.batch`."""
        return f"{self.job_id}.{self.step}" if self.step else self.job_id

    @property
    def ended(self) -> bool:
        """Tell whether the row is of something that is over and does not begin again."""
        return self.state not in NOT_ENDED

    @property
    def hosts(self) -> list[str]:
        """Return the names of its nodes."""
        return expand_hostlist(self.node_list)


def sacct_command(job: str, columns: Sequence[str] = SACCT_FIELDS, *, duplicates: bool = False) -> list[str]:
    """Return the command whose output `parse_sacct` and `parse_sacct_columns` read.

    Args:
        job: Number of the job.
        columns: Names of the columns.
        duplicates: Whether to show all attempts of a job that was requeued, and not the last one alone.

    >>> " ".join(sacct_command("17", ["JobID", "State"], duplicates=True))
    'sacct --parsable2 --duplicates --jobs=17 --format=JobID,State'
    """
    more = ["--duplicates"] if duplicates else []
    return ["sacct", "--parsable2", *more, f"--jobs={job}", f"--format={','.join(columns)}"]


def parse_sacct_columns(text: str) -> list[dict[str, str]]:
    r"""Read the output of `sacct --parsable2`, with its header line, into the text of each column.

    Of all columns only JobName may hold a `|` or a line break; what a row has too much belongs to it.

    Args:
        text: The output, with any columns in any order.

    Returns:
        A dictionary of column name to text for each row, in the order of the output. Empty where sacct knows no such
        job, or said nothing.

    Raises:
        SlurmParseError: A line has too few columns, or too many without a JobName among them.

    >>> parse_sacct_columns("JobID|JobName|State\n17|a|b|FAILED\n")
    [{'JobID': '17', 'JobName': 'a|b', 'State': 'FAILED'}]
    """
    lines = text.split("\n")  # and not splitlines: a name may hold other separators
    names = lines[0].rstrip("|").split("|")
    return [_columns(names, line) for line in _whole_rows(names, lines[1:])]


def _whole_rows(names: Sequence[str], lines: Sequence[str]) -> list[str]:
    """Put rows together that a line break in a job's name has torn: what follows one does not begin as a row does."""
    rows: list[str] = []
    for line in lines:
        torn = rows and "JobName" in names and rows[-1].count("|") < len(names) - 1
        if torn and not ROW_START.match(line):
            rows[-1] += f"\n{line}"
        elif line:
            rows.append(line)
    return [row.rstrip("\n") for row in rows]


def _columns(names: Sequence[str], line: str) -> dict[str, str]:
    values = line.split("|")
    if len(values) == len(names) + 1 and values[-1] == "":
        values.pop()  # `--parsable` ends each line with one more
    surplus = len(values) - len(names)
    if surplus > 0 and "JobName" in names:
        place = names.index("JobName")
        values[place : place + surplus + 1] = ["|".join(values[place : place + surplus + 1])]
    if len(values) != len(names):
        raise _refusal(line, f"{len(values)} columns under a header of {len(names)}")
    return dict(zip(names, values, strict=True))


def _refusal(line: str, problem: str) -> SlurmParseError:
    return SlurmParseError("row of sacct", line, 0, problem, EXAMPLE)


def parse_sacct(text: str) -> list[SacctRow]:
    r"""Read the output of `sacct --parsable2`, with its header line.

    Args:
        text: The output. The columns JobID, State and ExitCode have to be in it; their order does not matter.

    Returns:
        The rows, in the order of the output. Empty where sacct knows no such job, or said nothing.

    Raises:
        SlurmParseError: The header lacks a column, or a line has another form.

    >>> rows = parse_sacct("JobID|State|ExitCode|NTasks\n17|CANCELLED by 20001|0:0|\n17.0|FAILED|3:0|2\n")
    >>> [(row.identity, row.state, row.exit_code, row.tasks) for row in rows]
    [('17', 'CANCELLED', 0, None), ('17.0', 'FAILED', 3, 2)]
    """
    header, _, rest = text.partition("\n")
    if not header:
        return []
    names = header.rstrip("|").split("|")
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise SlurmParseError("header of sacct", header, 0, f"no column {missing[0]}", "|".join(SACCT_FIELDS))
    return [_row(line, _columns(names, line)) for line in _whole_rows(names, rest.split("\n"))]


def _row(line: str, row: dict[str, str]) -> SacctRow:
    identity = re.fullmatch(r"([0-9]+(?:[_+][0-9]+)?)(?:\.([\w+]+))?", row["JobID"], re.ASCII)
    code = re.fullmatch(r"([0-9]{1,9}):([0-9]{1,9})", row["ExitCode"] or "0:0")  # steps of a dead node have none
    if not identity:
        raise _refusal(line, f"{row['JobID']!r} is no job id")
    if not code:
        raise _refusal(line, f"{row['ExitCode']!r} is no exit code")
    if not row["State"].strip():
        raise _refusal(line, "no state")
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
    )


def _count(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def split_attempts(rows: Sequence[SacctRow]) -> list[list[SacctRow]]:
    r"""Split the rows of one job into its attempts: a job that was requeued has several.

    Args:
        rows: Rows of one job in the order of `sacct --duplicates`.

    Returns:
        The rows of each attempt, the last one last. Each begins with the job's own row.

    >>> rows = parse_sacct("JobID|State|ExitCode\n9|REQUEUED|0:0\n9.0|CANCELLED|0:15\n9|COMPLETED|0:0\n")
    >>> [[row.identity for row in attempt] for attempt in split_attempts(rows)]
    [['9', '9.0'], ['9']]
    """
    numbers = accumulate(not row.step for row in rows)
    numbered = zip(numbers, rows, strict=True)
    return [[row for _, row in group] for _, group in groupby(numbered, key=lambda pair: pair[0])]
