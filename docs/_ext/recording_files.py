"""Recordings: what a script or program printed, kept beside it with the stamp of the run."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import ClassVar

from srunbook._files import write_whole
from srunbook._json import STRICT, is_date, read_json

SCHEMA = 1


class RecordingError(ValueError):
    """A recording is missing, or does not have the form of one; the message names the file and the field."""


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

    Raises:
        RecordingError: The schema, the place, a date, the hash or a line of the output is not as it should be.
    """

    __pydantic_config__: ClassVar = STRICT

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
        """Check the fields that have a fixed form or set of values."""
        if self.schema != SCHEMA:
            raise RecordingError(f"recording has schema {self.schema}; this version reads {SCHEMA}")
        if self.where not in ("slurm", "simulation", "process"):
            raise RecordingError(f"recording: 'where' is {self.where!r}; it is slurm, simulation or process")
        for date in (self.date, *(run["date"] for run in self.also if "date" in run)):
            if not is_date(date):
                raise RecordingError(f"recording: 'date' is {date!r}; it reads like 2026-11-20")
        if not re.fullmatch(r"[0-9a-f]{64}", self.source_sha256):
            raise RecordingError(
                f"recording: 'source_sha256' is {self.source_sha256!r}; it is 64 hexadecimal digits, as hexdigest() "
                "gives them"
            )
        for line in self.output:
            if "\n" in line or "\r" in line:
                raise RecordingError(
                    f"recording: 'output' has the line {line!r}, which holds a line break; split it there"
                )


def recording_path(source: Path, run: str = "") -> Path:
    """Return the path of the recording of a file: `allreduce.sbatch` has `allreduce.recording.json`.

    Args:
        source: The file.
        run: Name of a special run with a recording of its own: `stopped` has `allreduce.stopped.recording.json`.
    """
    return source.with_name(".".join(filter(None, (source.stem, run, "recording.json"))))


def read_recording(path: Path) -> Recording:
    """Read a recording. Needs pydantic.

    Raises:
        RecordingError: The file is missing or does not have the form of a recording.
    """
    return read_json(path, Recording, RecordingError)


def write_recording(path: Path, recording: Recording) -> bool:
    """Write a recording whole, and only when it differs.

    Returns:
        Whether the file was written.
    """
    return write_whole(path, json.dumps(asdict(recording), indent=2) + "\n")
