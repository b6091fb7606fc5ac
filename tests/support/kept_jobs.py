"""Recordings of jobs whose scripts are not among the published ones: those of entries and of rehearsals."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from recording_files import Recording, read_recording, recording_path, write_recording
from support.comparing import compare
from support.proof import FRAMES, MASKS

from srunbook.cluster import FinishedJob, State

PLACES = re.compile(r'(?<=")/\S*/(?=site-packages/|python3\.\d+/)|(?<=")/home/\w+/[\w.-]+/')
"""Folders of this machine and of the job in a traceback."""


def check_output(script: Path, job: FinishedJob, essential: Sequence[str]) -> tuple[str, ...]:
    """Check that a job printed a line for each pattern; return its output without stacks of C++ and own folders."""
    printed = (line for line in job.output.splitlines() if not FRAMES.match(line))
    lines = tuple(PLACES.sub("", line.rstrip()) for line in printed)
    for pattern in essential:
        assert any(re.search(pattern, line) for line in lines), f"{script.name}: no line has {pattern}:\n{job.output}"
    return lines


def keep(
    request: pytest.FixtureRequest, state: State, script: Path, job: FinishedJob, essential: Sequence[str], *names: str
) -> None:
    """Compare what is essential in the output of a job with the recording of its script, or write that.

    Args:
        request: The test, and with it the option `--record`.
        state: The cluster.
        script: The script, beside which the recording lies.
        job: The job.
        essential: Patterns of what is the same at every run, but for `MASKS` and for how often it comes.
        names: Packages whose versions matter.
    """
    lines = check_output(script, job, essential)
    sha256 = hashlib.sha256(script.read_bytes()).hexdigest()
    if request.config.getoption("--record"):
        found = {name: importlib.metadata.version(name) for name in names}
        recording = Recording(
            command=f"sbatch {script.name}",
            where="slurm",
            date=datetime.now(UTC).date().isoformat(),
            source_sha256=sha256,
            output=lines,
            exit_code=job.exit_status,
            versions={"slurm": state.root["slurm"], "python": platform.python_version(), **found},
            plugins={name: state.plugins[name] for name in ("proctrack", "task")},
            accounting=job.rows,
        )
        write_recording(recording_path(script), recording)
    again = f"If this is as it should be: python -m pytest '{request.node.nodeid}' --record"
    recording = read_recording(recording_path(script))
    assert (recording.source_sha256, recording.exit_code != 0) == (sha256, job.exit_status != 0), again
    kept = [
        sorted({found[0] for line in side for pattern in essential if (found := re.search(pattern, line))})
        for side in (recording.output, lines)
    ]
    difference = compare(*kept, MASKS)
    assert not difference, f"{difference}\n{again}"
