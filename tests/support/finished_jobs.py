"""A finished job: what sacct says of it, what lies in its folder, and which verdict it deserves.

`drawn_jobs` makes one from a seed, `tampering` changes it, and `Job.write` lays it out in a folder.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from srunbook.slurm import compress_hostlist, expand_hostlist

SUMMARY = "sacct_summary.txt"
VALUE = rb"[\w.:+-]+"
"""What a field of a rank line is here."""


class Row(dict[str, Any]):
    """A row of sacct by column; two rows are the same only if they are one object."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__  # type: ignore[assignment]

    @property
    def step(self) -> str:
        """Return the name of the step, or nothing for the job itself."""
        return str(self["JobID"]).partition(".")[2]

    @property
    def nodes(self) -> set[str]:
        """Return its nodes, or none where the list cannot be read."""
        try:
            return set(expand_hostlist(self["NodeList"]))
        except ValueError:
            return set()

    def renumber(self, job: str) -> None:
        """Make it a row of another job."""
        step = f".{self.step}" if self.step else ""
        self["JobID"] = self["JobIDRaw"] = job + step


def row(job: str, raw: str, step: str, name: str, nodes: Sequence[str], tasks: int | None, **changes: str) -> Row:
    """Make the row of a job, or of one of its steps, that ended well."""
    dot = f".{step}" if step else ""
    count = str(len(nodes))
    made = Row(JobID=job + dot, JobIDRaw=raw + dot, JobName=name, State="COMPLETED", ExitCode="0:0", NNodes=count)
    made |= {"NTasks": "" if tasks is None else str(tasks), "Elapsed": "00:01:30", "NodeList": compress_hostlist(nodes)}
    made |= {"AllocNodes": count, "Submit": "2026-11-20T10:00:00", "Start": "2026-11-20T10:00:01"}
    made |= {"End": "2026-11-20T10:01:31", "Restarts": "0", "DerivedExitCode": "0:0", "Partition": "batch"}
    made.update(changes)
    return made


def render(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Print rows as `sacct --parsable2` does; a value may be a function of the columns."""
    cells = [[row[name](columns) if callable(row[name]) else row[name] for name in columns] for row in rows]
    return "".join("|".join(line) + "\n" for line in [list(columns), *cells])


@dataclass(frozen=True)
class Special:
    """Something in a folder that is no ordinary file: `folder`, `fifo`, `unreadable`, or `link` to a target."""

    kind: str
    target: str = ""

    def make(self, path: Path) -> None:
        """Put it there."""
        if self.kind == "folder":
            path.mkdir()
        elif self.kind == "fifo":
            os.mkfifo(path)
        elif self.kind == "link":
            path.symlink_to(self.target)
        else:
            path.write_bytes(b"secret")
            path.chmod(0)


Content = bytes | Special


@dataclass
class Job:
    """A finished job.

    Args:
        shape: What kind of job it is.
        number: What SLURM_JOB_ID was.
        target: What `srunbook verify` is given.
        deserves: The verdicts that are right for it.
        nodes: Names of the nodes of its ranks, as Slurm calls them.
        hosts: Host of each rank, as the ranks call them.
        attempts: How often Slurm started it.
        answers: Rows that sacct prints, by the number asked for.
        main: Row of the step that started the ranks.
        asked: The number that the target leads to.
        runs: How often each rank ran to its end in one attempt.
        epochs: Number of epochs.
        said: Fields that the rank lines have.
        results: Its folder of results, or None.
        logs: Path of the log of each rank, or of all under None.
        files: What lies in the folder where it was submitted.
        columns: Columns of metrics.csv.
        printed: Those that the log shows, too.
        required: Names of files that the folder of results has to hold.
        options: Options of the command.
        source: Who knows the job: `sacct`, its summary where sacct `forgot` it, or where sacct is `missing`.
        status: Exit status of sacct.
        edits: Changes to the text that sacct prints.
    """

    shape: str
    number: str
    target: str
    deserves: set[str]
    nodes: list[str]
    hosts: list[str]
    attempts: int
    answers: dict[str, list[Row]]
    main: Row
    asked: str = ""
    runs: int = 1
    epochs: int = 0
    said: set[str] = field(default_factory=set)
    results: str | None = None
    logs: dict[int | None, str] = field(default_factory=dict)
    files: dict[str, Content] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    printed: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    options: list[str] = field(default_factory=list)
    source: str = "sacct"
    status: int = 0
    edits: list[Callable[[str], str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Ask for its own number, unless told otherwise."""
        self.asked = self.asked or self.number

    @property
    def size(self) -> int:
        """Return the number of ranks."""
        return len(self.hosts)

    @property
    def rows(self) -> list[Row]:
        """Return what sacct says about the job."""
        return self.answers[self.asked]

    @property
    def current(self) -> list[Row]:
        """Return the rows by which it is to be judged: of the last attempt, but of all components and tasks."""
        if self.shape in ("array-whole", "het", "het-helper"):
            return self.rows
        starts = [place for place, row in enumerate(self.rows) if not row.step]
        return self.rows[starts[-1] :] if starts else self.rows

    @property
    def own(self) -> Row | None:
        """Return the row of the job itself, of its last attempt."""
        return next((row for row in reversed(self.rows) if not row.step), None)

    @property
    def steps(self) -> list[Row]:
        """Return the rows of what srun started in the last attempt."""
        return [row for row in self.current if row.step.isdigit()]

    @property
    def metrics(self) -> str | None:
        """Return the path of metrics.csv, or None."""
        path = f"{self.results}/metrics.csv"
        return path if isinstance(self.files.get(path), bytes) else None

    @property
    def possible_steps(self) -> list[Row]:
        """Return the steps that can have started these ranks: on all their nodes, and so many for each task."""
        fitting = [str(tasks) for tasks in range(len(self.nodes), self.size + 1) if self.size % tasks == 0]
        return [row for row in self.steps if row["NTasks"] in fitting and row.nodes >= set(self.nodes)]

    def unexplained(self) -> bool:
        """Tell whether nothing can have started these ranks; on one node, without any step, the script may have."""
        return not self.possible_steps if self.steps else len(self.nodes) > 1

    def log_of(self, rank: int) -> str:
        """Return the path of the log that a rank wrote to."""
        return self.logs.get(rank) or self.logs[None]

    def content(self, path: str) -> bytes:
        """Return what a file holds.

        Raises:
            LookupError: It is no ordinary file, or not there.
        """
        content = self.files[path]
        if isinstance(content, Special):
            raise LookupError(path)
        return content

    def lines(self, path: str) -> list[bytes]:
        """Return the lines of a file.

        Raises:
            LookupError: It is no ordinary file, or not there.
        """
        return self.content(path).split(b"\n")

    def find(self, rank: int, kind: str) -> tuple[str, int]:
        """Return path and number of the last line of a kind of a rank.

        Raises:
            LookupError: There is none.
        """
        path = self.log_of(rank)
        mark = re.compile(rb"(?<![A-Za-z_])rank %d/\d+ %s\b" % (rank, kind.encode()))
        found = [number for number, line in enumerate(self.lines(path)) if mark.search(line)]
        if not found:
            raise LookupError(f"rank {rank} has no {kind} line")
        return path, found[-1]

    def change(self, path: str, number: int, *lines: bytes) -> None:
        """Put lines in place of one."""
        text = self.lines(path)
        text[number : number + 1] = lines
        self.files[path] = b"\n".join(text)

    def edit(self, rank: int, kind: str, pattern: bytes, instead: bytes) -> None:
        """Change the last line of a kind of a rank.

        Raises:
            LookupError: There is no such line, or nothing in it to change.
        """
        path, number = self.find(rank, kind)
        changed, times = re.subn(pattern, lambda match: instead, self.lines(path)[number], count=1)
        if not times:
            raise LookupError(f"the {kind} line of rank {rank} has no {pattern!r}")
        self.change(path, number, changed)

    def value(self, rank: int, kind: str, name: str) -> bytes:
        """Return the value of a field.

        Raises:
            LookupError: The line does not say it.
        """
        path, number = self.find(rank, kind)
        match = re.search(rb"\b%s=(%s)" % (name.encode(), VALUE), self.lines(path)[number])
        if not match:
            raise LookupError(name)
        return match[1]

    def sacct(self, asked: str, columns: Sequence[str]) -> str:
        """Return what sacct prints about a number."""
        text = render(self.answers.get(asked, []), columns)
        for edit in self.edits if asked == self.asked else []:
            text = edit(text)
        return text

    def write(self, folder: Path, columns: Sequence[str]) -> Path:
        """Write everything into a new folder; return the one where the job was submitted."""
        shutil.rmtree(folder, ignore_errors=True)
        here = folder / "submitted"
        here.mkdir(parents=True)
        files = dict(self.files)
        if self.source != "sacct":
            files.setdefault(f"{self.results}/{SUMMARY}", self.sacct(self.asked, columns).encode("utf-8", "replace"))
        if self.results and self.results not in files:
            (here / self.results).mkdir(parents=True)
        for name, content in files.items():
            path = here / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                path.write_bytes(content)
            else:
                content.make(path)
        return here

    def snapshot(self) -> tuple[object, ...]:
        """Return all that a verification can see, to tell whether anything has changed."""
        columns = list(self.main)
        texts = {asked: self.sacct(asked, columns) for asked in self.answers}
        return (texts, dict(self.files), self.target, self.results, self.source, self.status)
