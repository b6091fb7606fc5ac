"""Recordings: what a script or program printed, kept beside it with the stamp of the run."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from srunbook.formats._files import FormatError, build, check_date, check_sha256, read_json, write_whole

SCHEMA = 1


@dataclass(frozen=True)
class Recording:
    """One run of a published file.

    Args:
        command: What was typed, as a reader would type it.
        where: `slurm` for a run on a real Slurm, `simulation` for one under `srunbook simulate`,
            `process` for a plain process.
        date: ISO date of the run.
        source_sha256: SHA-256 of the file at the time of the run.
        output: Its output, line by line.
        exit_code: Exit status of the job or process.
        versions: Versions that mattered: `slurm`, `python`, `jax`, ...
        plugins: Slurm's plugins that shape behaviour: `proctrack`, `task`.
        accounting: For a job, rows of sacct: `JobID`, `State`, `ExitCode`, ...
        also: Other generations the unmodified file ran on: `{"slurm": "24.11.5", "date": "2026-11-20"}`.
        schema: Version of this form.
    """

    command: str
    where: str
    date: str
    source_sha256: str
    output: tuple[str, ...]
    exit_code: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    plugins: dict[str, str] = field(default_factory=dict)
    accounting: list[dict[str, str]] = field(default_factory=list)
    also: list[dict[str, str]] = field(default_factory=list)
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        """Checks the fields that have a fixed form or set of values."""
        if self.schema != SCHEMA:
            raise FormatError(f"recording has schema {self.schema}; this version reads {SCHEMA}")
        if self.where not in ("slurm", "simulation", "process"):
            raise FormatError(f"recording: 'where' is {self.where!r}; it is slurm, simulation or process")
        for date in (self.date, *(run["date"] for run in self.also if "date" in run)):
            check_date("recording", date)
        check_sha256("recording", "source_sha256", self.source_sha256)
        for line in self.output:
            if "\n" in line or "\r" in line:
                raise FormatError(
                    f"recording: 'output' has the line {line!r}, which holds a line break; split it there"
                )


@dataclass(frozen=True)
class Mask:
    """Something that may vary between two runs of the same file.

    Args:
        pattern: Regular expression of what varies.
        replacement: What stands for it in a comparison.
        reason: Why it may vary.
    """

    pattern: str
    replacement: str
    reason: str


def recording_path(source: Path) -> Path:
    """Path of the recording that belongs to a file: `allreduce.sbatch` has `allreduce.recording.json`."""
    return source.with_name(f"{source.stem}.recording.json")


def read_recording(path: Path) -> Recording:
    """Reads a recording.

    Raises:
        FormatError: The file is missing or has not the form of a recording.
    """
    return build(Recording, read_json(path), str(path))


def write_recording(path: Path, recording: Recording) -> bool:
    """Writes a recording whole, and only when it differs; returns whether it was written."""
    return write_whole(path, json.dumps(asdict(recording), indent=2) + "\n")


def compare(
    recorded: Sequence[str], printed: Sequence[str], masks: Iterable[Mask] = (), *, ordered: bool = True
) -> str | None:
    r"""Compares a recorded output with that of a new run.

    Args:
        recorded: Lines of the recording.
        printed: Lines of the new run.
        masks: What may vary.
        ordered: False where ranks may print in any order: both sides are sorted.

    Returns:
        None where they agree, else a unified diff of the masked lines.

    >>> compare(["job 17 done"], ["job 18 done"], [Mask(r"job \d+", "job <id>", "a fresh id each time")])
    >>> print(compare(["y=[8.]"], ["y=[7.]"]))
    --- recorded
    +++ printed
    @@ -1 +1 @@
    -y=[8.]
    +y=[7.]
    """
    masks = list(masks)

    def masked(lines: Sequence[str]) -> list[str]:
        result = []
        for line in lines:
            for mask in masks:
                line = re.sub(mask.pattern, mask.replacement, line)
            result.append(line.rstrip())
        return result if ordered else sorted(result)

    difference = list(difflib.unified_diff(masked(recorded), masked(printed), "recorded", "printed", lineterm=""))
    return "\n".join(difference) if difference else None
