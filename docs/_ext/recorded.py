"""The directive `recorded` and the badge of a script: what a file printed when it last ran, and where that was."""

from __future__ import annotations

import hashlib
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from repository import FileError, RepositoryDirective, line, root
from sphinx.util import logging

from recordings import Recording, read_recording, recording_path
from srunbook.slurm import expand_pattern

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

logger = logging.getLogger(__name__)

NAMES = {
    "slurm": "Slurm",
    "python": "Python",
    "jax": "JAX",
    "torch": "PyTorch",
    "lightning": "Lightning",
    "accelerate": "Accelerate",
    "transformers": "Transformers",
    "apptainer": "Apptainer",
    "charliecloud": "Charliecloud",
    "pyxis": "a stand-in for pyxis",
}


def recording_of(env: BuildEnvironment, path: Path, run: str = "") -> Recording | None:
    """Read the recording of a file, and warn where it belongs to other bytes than those on the page."""
    beside = recording_path(path, run)
    env.note_dependency(str(beside))  # while it is not there, each build reads the page again
    if not beside.is_file():
        return None
    recording = read_recording(beside)
    if recording.source_sha256 != hashlib.sha256(path.read_bytes()).hexdigest():
        logger.warning(
            "%s was recorded from another version of the file: run it again and record what it prints",
            beside.relative_to(root(env)),
            location=env.docname,
            type="recordings",
        )
    return recording


def duration(rows: list[dict[str, str]]) -> str:
    """Say how long a job took or, if it was requeued, how often it started.

    >>> duration([{"State": "COMPLETED", "Elapsed": "00:01:17"}])
    'in 77 s'
    >>> duration([{"State": "REQUEUED", "Elapsed": "00:00:09"}, {"State": "COMPLETED", "Elapsed": "00:01:17"}])
    'in 2 starts'
    """
    if requeued := sum(row["State"] == "REQUEUED" for row in rows):
        return f"in {requeued + 1} starts"
    hours, minutes, seconds = (int(part) for part in rows[0]["Elapsed"].split(":"))
    return f"in {hours * 3600 + minutes * 60 + seconds} s".replace("in 0 s", "in under 1 s")


def log_name(script: str, row: dict[str, str]) -> str:
    r"""Name the file that a job wrote to; empty for a pattern of sbatch that is not known here.

    >>> job = {"JobID": "17", "JobName": "ddp"}
    >>> log_name("#!/bin/bash\n#SBATCH --output=%x-%j.out\n", job), log_name("#!/bin/bash\n", job)
    ('ddp-17.out', 'slurm-17.out')
    >>> log_name("#SBATCH -o %A_%a.out", job)
    ''
    """
    option = re.search(r"^#SBATCH\s+(?:--output=|-o\s+)(\S+)", script, re.MULTILINE)
    name = expand_pattern(option[1] if option else "slurm-%j.out", {"x": row["JobName"], "j": row["JobID"]})
    return "" if "%" in name else name


def caption(recording: Recording, path: Path) -> nodes.paragraph:
    """Write the line above an output: the command, and for a job its log, since sbatch prints the number only."""
    command = nodes.literal("", recording.command)
    if recording.command.startswith("sbatch ") and recording.accounting:
        name = log_name(path.read_text(encoding="utf-8"), recording.accounting[0])
        if name:
            return line(nodes.literal("", name), ", the log of ", command, classes=["recorded-caption"])
    return line("What ", command, " printed", classes=["recorded-caption"])


def stamp(recording: Recording) -> str:
    """Say in one line how, where and when something ran."""
    versions = [f"{NAMES.get(name, name)} {version}" for name, version in recording.versions.items()]
    if recording.where == "slurm":
        program, *words = shlex.split(recording.command)
        arguments = " ".join(words[1:]) if program == "sbatch" else ""  # of `sbatch SCRIPT ARGUMENTS`
        ran = f"Ran with {arguments} on" if arguments else "Ran on"
        place = f"{ran} {versions[0]} {duration(recording.accounting)}"
        others = [f"also on Slurm {other['slurm']}" for other in recording.also]
        parts = [place, recording.date, *versions[1:], *others]
    else:
        place = "Ran in the local simulation" if recording.where == "simulation" else "Ran as a plain process"
        parts = [place, recording.date, *versions]
    if recording.exit_code:
        parts.append(f"exit status {recording.exit_code}")
    return ", ".join(parts)


def badge(env: BuildEnvironment, path: Path) -> nodes.paragraph:
    """Write the line under a script: the run on a real Slurm that its recording proves, or that it has not run yet."""
    recording = recording_of(env, path)
    if recording is None:
        return line("Not yet run on Slurm.", classes=["badge-line", "badge-none"])
    return line(f"{stamp(recording)}.", classes=["badge-line", "badge-ran"])


class Recorded(RepositoryDirective):
    """Shows the recorded output of a file with its stamp."""

    option_spec: ClassVar = dict.fromkeys(("match", "run"), directives.unchanged_required)

    def build(self, path: Path) -> Iterator[nodes.Node]:
        """Build command, output and stamp."""
        run = self.options.get("run", "")
        recording = recording_of(self.env, path, run)
        if recording is None:
            raise FileError(f"{self.arguments[0]} has no recording: run it and record what it prints")
        lines = self.shown(recording)
        below = line(f"{stamp(recording)}.", classes=["badge-line", "badge-ran"])
        if len(lines) < len(recording.output):
            below += nodes.Text(f" Shown: {len(lines)} of {len(recording.output)} lines.")
        text = "\n".join(lines)
        block = nodes.literal_block(text, text, language="none", recording=recording_path(path, run).name)
        self.set_source_info(block)
        yield nodes.container("", caption(recording, path), block, below, classes=["recorded"], is_div=True)

    def shown(self, recording: Recording) -> tuple[str, ...]:
        """Choose the lines to show."""
        if "match" not in self.options:
            return recording.output
        try:
            pattern = re.compile(self.options["match"])
        except re.error as error:
            raise FileError(f"{self.options['match']!r} is not a valid regular expression: {error}") from None
        lines = tuple(content for content in recording.output if pattern.search(content))
        if not lines:
            raise FileError(f"no recorded line matches {self.options['match']!r}")
        return lines


def setup(app: Sphinx) -> dict[str, int]:
    """Register the directive."""
    app.setup_extension("repository")
    app.add_directive("recorded", Recorded)
    return {"env_version": 2}  # of what is noted of a page
