"""Recordings: what a script or program printed, kept beside it with the stamp of the run.

The site shows them, and tests compare each new run with them: the form is here, the comparison in `comparing`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from srunbook._files import write_whole
from srunbook._json import STRICT, read_json


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
    """

    __pydantic_config__: ClassVar = STRICT

    command: str
    where: Literal["slurm", "simulation", "process"]
    date: str
    source_sha256: str
    output: tuple[str, ...]
    exit_code: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    plugins: dict[str, str] = field(default_factory=dict)
    accounting: list[dict[str, str]] = field(default_factory=list)
    also: list[dict[str, str]] = field(default_factory=list)
    schema: Literal[1] = 1

    @property
    def text(self) -> str:
        """The output in one piece."""
        return "\n".join(self.output)


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
