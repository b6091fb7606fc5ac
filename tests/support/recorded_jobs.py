"""Compare what a script of an entry or a rehearsal printed on the cluster with its recording, or write that."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from recording_files import Recording, read_recording, recording_path, write_recording
from support.comparing import Mask, compare, masked
from support.proof import FRAMES
from support.proof import MASKS as JOB_MASKS

from srunbook.cluster import State

MASKS = (
    Mask(r"\[\w\d{4} [\d:.]+ (\S+)\]", r"[<time> \1]", "time of a message"),
    Mask(r"(?<!/)\b[01]: ", "<rank>: ", "which rank comes first is chance"),
    Mask(r"\$[01]\b", "$<rank>", "which rank comes first is chance"),
    Mask(r":\d{4,5}\b", ":<port>", "the system chose the port"),
    Mask(r"(=\[127\.0\.1\.1\]):\d+", r"\1:<port>", "gloo prints a port with its bytes swapped: 1 to 5 digits"),
    Mask(r"\bnode[12] is known", "<node> is known", "each of the two nodes says it"),
    Mask(r"\b\d+\b( \S+ PENDING)", r"<id>\1", "Slurm numbers jobs as they come"),
    Mask(r"(results)/\d+", r"\1/<id>", "Slurm numbers jobs as they come"),
    Mask(r"[\d.]+ times as long", "<n> times as long", "machines are not equally fast"),
    Mask(r"val_mae [\d.]+  val_rmse [\d.]+", "val_mae <n>  val_rmse <n>", "processors round in different ways"),
)

PLACES = re.compile(r'(?<=")/\S*/(?=site-packages/|python3\.\d+/)|(?<=")/home/\w+/[\w.-]+/')
"""Folders of this machine and of the job in a traceback."""


def check_output(script: Path, output: str, essential: Iterable[str]) -> tuple[str, ...]:
    """Check that a job printed a line for each pattern; return its output without stacks of C++ and own folders."""
    for pattern in essential:
        assert re.search(pattern, output, re.MULTILINE), f"{script}: no line has {pattern}:\n{output}"
    return tuple(PLACES.sub("", line.rstrip()) for line in output.splitlines() if not FRAMES.match(line))


def add_generation(script: Path, sha256: str, version: str) -> None:
    """Note in a recording of the same script that it also ran on another generation of Slurm."""
    path = recording_path(script)
    recording = read_recording(path)
    assert recording.source_sha256 == sha256, f"{path.name} is of other bytes: record it on Slurm 22.05 first"
    others = [run for run in recording.also if run["slurm"].rsplit(".", 1)[0] != version.rsplit(".", 1)[0]]
    others.append({"slurm": version, "date": datetime.now(UTC).date().isoformat()})
    write_recording(path, replace(recording, also=sorted(others, key=lambda run: run["slurm"])))


def entry_check(slurm: State, request: pytest.FixtureRequest) -> Callable[..., None]:
    """Return what compares a script's output with its recording, or writes it with `--record`.

    Lines that have an essential pattern have to be the same, but for masks and for how often they come. With
    `matched`, only what the patterns match is compared, and any status but 0 is as good as another. `first` is the
    generation whose run is the recording, `libraries` are packages whose versions matter.
    """

    def check(
        script: Path,
        command: str,
        output: str,
        essential: Iterable[str],
        status: int = 0,
        rows: Iterable[dict[str, str]] = (),
        masks: Iterable[Mask] = (),
        first: str = "22.05",
        libraries: Iterable[str] = (),
        matched: bool = False,
    ) -> None:
        lines = check_output(script, output, essential)
        sha256 = hashlib.sha256(script.read_bytes()).hexdigest()
        if slurm.specification.slurm != first:
            if request.config.getoption("--record"):
                add_generation(script, sha256, slurm.root["slurm"])
            return
        if request.config.getoption("--record"):
            versions = {name: importlib.metadata.version(name) for name in libraries}
            recording = Recording(
                command=command,
                where="slurm" if script.suffix == ".sbatch" else "process",
                date=datetime.now(UTC).date().isoformat(),
                source_sha256=sha256,
                output=lines,
                exit_code=status,
                versions={"slurm": slurm.root["slurm"], "python": platform.python_version(), **versions},
                plugins={name: slurm.plugins[name] for name in ("proctrack", "task")},
                accounting=[*rows],
            )
            write_recording(recording_path(script), recording)
        again = f"If this is as it should be: python -m pytest '{request.node.nodeid}' --record"
        assert recording_path(script).exists(), again
        recording = read_recording(recording_path(script))
        assert recording.source_sha256 == sha256, again
        assert recording.exit_code == status or (matched and recording.exit_code and status), again
        ours = JOB_MASKS if matched else (*masks, *MASKS)
        found = [[(re.search(p, line), line) for line in side for p in essential] for side in (recording.output, lines)]
        once = [sorted({masked(part[0] if matched else line, ours) for part, line in side if part}) for side in found]
        difference = compare(*once)
        assert not difference, f"{difference}\n{again}"

    return check
