"""No recording says more than what ran: where, when, with which versions, and beside which file."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from recording_files import Recording, read_recording, recording_path, write_recording

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


def test_some_recordings_exist():
    """The recordings above are not an empty set."""
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

GREETING = "[0] [Gloo] Rank 1 is connected to 3 peer ranks. Expected number of connected peer ranks is : 3"


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[..., Path]:
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
        ({}, None),
        ({"where": "slurm"}, "slurm beside worker.py"),
        ({"date": STILL_TO_COME}, "which is still to come"),
        ({"also": [{"slurm": "24.11.5", "date": STILL_TO_COME}]}, "which is still to come"),
        ({"versions": {"python": "3.11.2", "jax": "0.9.9"}}, "of jax 0.9.9, not 0.10.2"),
        ({"source_sha256": "0" * 64}, "of another version of worker.py"),
        ({"output": ("frame #0: (0x7f in /data/env/lib/site-packages/torch/lib/libc10.so)",)}, "names a folder"),
    ],
    ids=["whole", "where", "date", "also", "jax", "source", "place"],
)
def test_forged_recording_is_found(recorded, changes, complaint):
    """A recording that says what cannot have been is named."""
    root = recorded(**changes).parents[1]

    found = shortcomings(root)

    assert bool(found) == (complaint is not None)
    assert complaint is None or complaint in found[0]


def test_orphan_is_found(recorded):
    """A recording whose program is gone is named."""
    program = recorded()
    program.unlink()

    assert shortcomings(program.parents[1]) == [
        "examples/worker.recording.json: there are 0 files that it may be of, not one"
    ]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({}, None),
        ({"where": "slurm"}, "says that worker.py ran on slurm"),
        ({"where": "simulation"}, "says that worker.py ran on simulation"),
        ({"exit_code": 1}, "has exit status 1; the run ended with 0"),
        ({"date": STILL_TO_COME}, "which is still to come"),
        ({"versions": {"python": "3.11.2", "jax": "0.9.9"}}, "is of jax 0.9.9; installed is"),
        ({"versions": {"python": "new", "jax": "0.10.2"}}, "is of python new"),
        ({"versions": {"python": "3.11.2"}}, "names the versions of ['python'], not of"),
        ({"versions": {**SAMPLE.versions, "slurm": "22.05.8"}}, "names the versions of"),
        ({"output": ("loss 1.0", "a line about /x at 0x12")}, "+loss 1.0"),
        ({"output": (*SAMPLE.output, "all 8 GPUs are busy")}, "but not printed:\nall 8 GPUs are busy"),
        ({"output": (*SAMPLE.output, GREETING)}, None),
        ({"output": (*SAMPLE.output, f"sha256 {'0f' * 32}")}, None),
        ({"output": ("loss 1.0", "loss 1.0", "a line about /x   at 0x99")}, None),
    ],
    ids=lambda value: "" if value is None or isinstance(value, str) else " ".join(value) or "whole",
)
def test_run_that_is_not_the_recorded_one(recorded, reader, monkeypatch, changes, complaint):
    """A run differs from a recording of another place, status, day, version, number of lines, or further lines."""
    program = recorded(**changes)
    run = type("Run", (), {"command": SAMPLE.command, "lines": SAMPLE.output, "status": 0, "text": ""})()
    monkeypatch.setattr(type(reader), "framework", staticmethod(lambda _: {"jax": "0.10.2"}))

    found = reader.difference(program, run, SAMPLE.source_sha256, lambda line: "loss" in line, [])

    assert (found is None) == (complaint is None), found
    assert complaint is None or complaint in found


@pytest.mark.parametrize(
    "printed",
    [
        (GREETING, "[0] step 1"),
        ("[0] step 1",),
        ("[0] [Gloo] Rank [Gloo] Rank 10 is connected to  is connected to 3 peer ranks. ", "[0] 3", "[0] step 1"),
        ("[0] 1 peer ranks. Expected number of connected peer ranks is : 1", "[0] 3 3", "[0] ", "[0] step 1"),
        ("[0] [Gloo] Rank 1 is connected to step 1", "[0] 3 peer ranks. "),
        ("[0] [Gloo] Rank 1step 1",),
        ("[0] [Gloo] Rank 1step 1[Gloo] Rank 1 is connected to 3 peer ranks. ", "[0] 3", "[0]"),
    ],
    ids=["whole", "none", "mixed", "numbers", "before", "number before", "after"],
)
def test_greetings_of_gloo_are_no_difference(recorded, reader, monkeypatch, printed):
    """However the greetings of several devices mix, the program's own line is found, and a missing one is."""
    program = recorded(output=(GREETING, "[0] step 1"))
    run = type("Run", (), {"command": SAMPLE.command, "lines": printed, "status": 0, "text": ""})()
    monkeypatch.setattr(type(reader), "framework", staticmethod(lambda _: {"jax": "0.10.2"}))

    assert reader.difference(program, run, SAMPLE.source_sha256, lambda line: True, []) is None
    run.lines = tuple(line.replace("step 1", "step 2") for line in printed)
    assert "+[0] step 2" in reader.difference(program, run, SAMPLE.source_sha256, lambda line: True, [])


def test_output_of_a_failing_run_counts_each_line_once(recorded, reader, monkeypatch):
    """How many ranks still report a failure is chance; what they report is not."""
    program = recorded(exit_code=1, output=("loss 1.0",))
    run = type("Run", (), {"command": SAMPLE.command, "lines": ("loss 1.0", "loss 1.0"), "status": 1, "text": ""})()
    monkeypatch.setattr(type(reader), "framework", staticmethod(lambda _: {"jax": "0.10.2"}))

    assert reader.difference(program, run, SAMPLE.source_sha256, lambda line: True, []) is None
