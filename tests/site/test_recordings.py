"""Recordings: their form, that those of the repository are of what is there, and how a new run is compared."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from recordings import Recording, RecordingError, read_recording, recording_path, write_recording
from recordings.checking import check, difference

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("examples", "slurm", "scripts")
OWN_PLACE = re.compile(r"[\s(\"'=](?!/home/alice/)/\S+/site-packages/|[\s(\"'=]/root/")
"""A folder where packages are installed, with all that is above it, or the home of root; alice lives on the cluster."""


def other_versions(recording: Recording, pinned: dict[str, str]) -> list[str]:
    """List the frameworks whose version is not the one that runs here."""
    found = []
    for package in ("accelerate", "jax", "torch", "transformers"):
        version = recording.versions.get(package, pinned.get(package, "")).split("+")[0]
        if version != pinned.get(package, version):
            found.append(f"of {package} {version}, not {pinned[package]}")
    return found


def shortcomings(root: Path) -> list[str]:
    """List what is wrong with the recordings of a repository, without running anything."""
    pinned = dict(re.findall(r"^([\w-]+)==([^\s;+]+)", (root / "constraints.txt").read_text(encoding="utf-8"), re.M))
    found = []
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.recording.json")):
        name, recording = path.relative_to(root).as_posix(), read_recording(path)
        stem = path.name.partition(".")[0]  # of job.recording.json, and of job.stopped.recording.json
        sources = [path.with_name(stem + suffix) for suffix in (".py", ".sbatch", ".sh", ".yaml")]
        sources = [source for source in sources if source.is_file()]
        if len(sources) != 1:
            found.append(f"{name}: there are {len(sources)} files that it may be of, not one")
            continue
        if recording.source_sha256 != hashlib.sha256(sources[0].read_bytes()).hexdigest():
            found.append(f"{name}: of another version of {sources[0].name}")
        if (recording.where == "slurm") != (sources[0].suffix == ".sbatch"):
            found.append(f"{name}: {recording.where} beside {sources[0].name}")
        for stamp in [{"date": recording.date, **recording.versions}, *recording.also]:
            if stamp.get("date", "") > datetime.now(UTC).date().isoformat():
                found.append(f"{name}: of {stamp['date']}, which is still to come")
        found += [f"{name}: {problem}" for problem in other_versions(recording, pinned)]
        if recording.where == "slurm" and not (recording.accounting and "slurm" in recording.versions):
            found.append(f"{name}: on Slurm, without its version or its accounting")
        if any(OWN_PLACE.search(line) for line in recording.output):
            found.append(f"{name}: names a folder of the machine that it was made on")
    return found


def test_recordings_of_the_repository():
    """Every recording is of a file that is there, as it is now, and of a run that can have been."""
    assert shortcomings(ROOT) == []
    assert len([path for folder in FOLDERS for path in (ROOT / folder).rglob("*.recording.json")]) > 10


STILL_TO_COME = (datetime.now(UTC) + timedelta(days=2)).date().isoformat()
SAMPLE = Recording(
    command="python worker.py",
    where="process",
    date="2026-01-02",
    source_sha256=hashlib.sha256(b"import jax\n").hexdigest(),
    output=("loss 1.0", "loss 1.0", "a line about /x at 0x12", f"sha256 {'ab' * 32}"),
    versions={"python": "3.11.2", "jax": "0.10.2"},
)
PLACE = "frame #0: (0x7f in /data/env/lib/site-packages/torch/lib/libc10.so)"


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Write a program and a recording of it with some fields changed."""

    def write(**changes: Any) -> Path:
        program = tmp_path / "examples" / "worker.py"
        program.parent.mkdir(exist_ok=True)
        program.write_bytes(b"import jax\n")
        (tmp_path / "constraints.txt").write_text("jax==0.10.2\n")
        write_recording(recording_path(program), replace(SAMPLE, **changes))
        return program

    return write


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"where": "slurm"}, "slurm beside worker.py"),
        ({"also": [{"slurm": "24.11.5", "date": STILL_TO_COME}]}, "which is still to come"),
        ({"versions": {"python": "3.11.2", "jax": "0.9.9"}}, "of jax 0.9.9, not 0.10.2"),
        ({"source_sha256": "0" * 64}, "of another version of worker.py"),
        ({"output": (PLACE,)}, "names a folder"),
    ],
)
def test_forged_recording_is_found(written, changes, complaint):
    """A recording that says what cannot have been is named; so is one whose program is gone."""
    assert shortcomings(written().parents[1]) == []
    program = written(**changes)
    assert complaint in shortcomings(program.parents[1])[0]
    program.unlink()

    assert "there are 0 files that it may be of" in shortcomings(program.parents[1])[0]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({}, None),
        ({"where": "simulation"}, "has where simulation; this run has process"),
        ({"exit_code": 1}, "has exit_code 1; this run has 0"),
        ({"source_sha256": "0" * 64}, "of another version of the file"),
        ({"versions": {"python": "3.11.2", "jax": "0.9.9"}}, "is of jax 0.9.9; this run is of 0.10.2"),
        ({"output": ("loss 1.0", "a line about /x at 0x12")}, "+loss 1.0"),
        ({"output": (*SAMPLE.output, "all 8 GPUs are busy")}, "but not printed:\nall 8 GPUs are busy"),
        ({"output": (*SAMPLE.output, f"sha256 {'0f' * 32}")}, None),
    ],
    ids=lambda value: "" if value is None or isinstance(value, str) else " ".join(value) or "whole",
)
def test_run_that_is_not_the_recorded_one(changes, complaint):
    """A run differs from a recording of another place, status, version, number of lines, or further lines."""
    problem = difference(replace(SAMPLE, **changes), SAMPLE, keep=lambda line: "loss" in line)

    assert (problem is None) == (complaint is None), problem
    assert complaint is None or complaint in problem


def test_home_and_other_generations(written):
    """A run on another generation of Slurm is added to the recording; one of its home replaces it where it differs."""
    home = replace(SAMPLE, where="slurm", versions={"slurm": "22.05.8"})
    program = written(**asdict(home))
    newer = replace(home, output=("other words",), versions={"slurm": "24.11.5"}, date="2026-02-03")
    write = partial(check, program, record=True, again="")
    write(newer, keep=lambda line: False)
    write(newer, keep=lambda line: False)
    write(replace(home, output=("loss 2.0",)), keep=lambda line: "loss" in line)

    assert read_recording(recording_path(program)) == replace(
        home, output=("loss 2.0",), also=[{"slurm": "24.11.5", "date": "2026-02-03"}]
    )
    with pytest.raises(AssertionError, match="another version of the file"):
        write(replace(newer, source_sha256="0" * 64))


def test_recording_comes_back(tmp_path):
    """A recording lies beside its file, and is read as it was written."""
    path = recording_path(tmp_path / "allreduce.sbatch", "stopped")

    assert path == tmp_path / "allreduce.stopped.recording.json"
    assert write_recording(path, SAMPLE)
    assert not write_recording(path, SAMPLE)  # nothing changed, nothing written
    assert read_recording(path) == SAMPLE


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"where": "laptop"}, "field 'where': Input should be 'slurm', 'simulation' or 'process'"),
        ({"versions": {"jax": 10}}, "field 'versions.jax': Input should be a valid string"),
        ({"host": "node1"}, "field 'host': Unexpected keyword argument"),
    ],
)
def test_wrong_recording(tmp_path, changes, complaint):
    """A recording of another form is rejected by the name of its file and field."""
    path = tmp_path / "a.recording.json"
    path.write_text(json.dumps(asdict(SAMPLE) | changes))

    with pytest.raises(RecordingError, match=f"a.recording.json: .*{complaint}"):
        read_recording(path)
