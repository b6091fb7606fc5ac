"""Recordings: what is written is read again, and another form is refused by the name of its field."""

from __future__ import annotations

import json

import pytest
from recording_files import Recording, RecordingError, read_recording, recording_path, write_recording
from support.comparing import Mask, compare

RECORDING = {
    "command": "sbatch allreduce.sbatch",
    "where": "slurm",
    "date": "2026-11-20",
    "source_sha256": "0" * 64,
    "output": ["y=[8.]"],
}


def without(data: dict, name: str) -> dict:
    """Return the same data without one field."""
    return {key: value for key, value in data.items() if key != name}


def test_recording_path(tmp_path):
    """A recording lies beside its file, under the file's stem."""
    script = tmp_path / "allreduce.sbatch"

    assert recording_path(script) == tmp_path / "allreduce.recording.json"
    assert recording_path(script, "stopped") == tmp_path / "allreduce.stopped.recording.json"


def test_recording_comes_back(tmp_path):
    """A recording that was written is read as the same."""
    path = tmp_path / "a.recording.json"
    recording = Recording(**{**RECORDING, "output": ("one", "", "two")}, accounting=[{"JobID": "17"}])

    assert write_recording(path, recording)
    assert not write_recording(path, recording)  # nothing changed, nothing written
    assert read_recording(path) == recording


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (RECORDING | {"where": "laptop"}, "'where' is 'laptop'; it is slurm, simulation or process"),
        (RECORDING | {"date": "20.11.2026"}, "'date' is '20.11.2026'; it reads like 2026-11-20"),
        (RECORDING | {"date": "2026-13-99"}, "'date' is '2026-13-99'; it reads like 2026-11-20"),
        (RECORDING | {"date": "20261120"}, "'date' is '20261120'; it reads like 2026-11-20"),
        (RECORDING | {"date": "\uff12026-11-20"}, "'date' is"),
        (RECORDING | {"also": [{"slurm": "24.11.5", "date": "2026-02-30"}]}, "'date' is '2026-02-30'"),
        (RECORDING | {"source_sha256": "f00"}, "'source_sha256' is 'f00'; it is 64 hexadecimal digits"),
        (RECORDING | {"source_sha256": "G" * 64}, "'source_sha256' is"),
        (RECORDING | {"output": ["one\ntwo"]}, "'output' has the line 'one.ntwo', which holds a line break"),
        (RECORDING | {"schema": 2}, "recording has schema 2; this version reads 1"),
        (RECORDING | {"schema": 1.0}, "field 'schema' should be a valid integer, found 1.0"),
        (RECORDING | {"schema": True}, "field 'schema' should be a valid integer, found True"),
        (RECORDING | {"exit_code": "0"}, "field 'exit_code' should be a valid integer, found '0'"),
        (RECORDING | {"output": "y"}, "field 'output' should be a valid array, found 'y'"),
        (RECORDING | {"output": ["y", 1]}, "field 'output.1' should be a valid string, found 1"),
        (RECORDING | {"versions": {"jax": 10}}, "field 'versions.jax' should be a valid string, found 10"),
        (RECORDING | {"host": "node1"}, "unknown field 'host'; known are accounting, also, command"),
        (without(RECORDING, "command"), "field 'command' is missing"),
        ([], r"expected an object, found \[\]"),
    ],
)
def test_wrong_recording(tmp_path, data, complaint):
    """A recording of another form is refused in one line that names the file and the field."""
    path = tmp_path / "a.recording.json"
    path.write_text(json.dumps(data))

    with pytest.raises(RecordingError, match=f"a.recording.json: .*{complaint}") as caught:
        read_recording(path)
    assert "\n" not in str(caught.value)


def test_comparison_masks_what_may_vary():
    """What a mask names may differ between two runs, and nothing else."""
    masks = [Mask(r"pid \d+", "pid <pid>", "a fresh process each time")]

    assert compare(["pid 1, y=8"], ["pid 22, y=8"], masks) is None
    assert "+pid <pid>, y=7" in compare(["pid 1, y=8"], ["pid 22, y=7"], masks)
    assert compare(["pid 1"], ["pid 22"]) is not None


def test_comparison_of_unordered_lines():
    """Where ranks print in any order, the order does not count, and a missing line does."""
    assert compare(["a", "b"], ["b", "a"], ordered=False) is None
    assert compare(["a", "b"], ["b", "a"]) is not None
    assert compare(["a", "b"], ["b"], ordered=False) is not None


@pytest.mark.parametrize("ordered", [True, False])
def test_comparison_of_numbers(ordered):
    """Numbers with a fraction agree within 1 %, line by line; counts, versions and addresses have to be the same."""
    recorded = ["step 10: loss 0.2948003, rate 1.00e-03", "step 20: loss 0.1"]
    printed = ["step 10: loss 0.2949", "step 20: loss 0.1005"]
    printed[0] += ", rate 1.001e-03"

    assert compare(recorded, printed, ordered=ordered) is None
    assert "+step 20: loss 0.102" in compare(recorded, [printed[0], "step 20: loss 0.102"], ordered=ordered)
    for one, other in (("step 100", "step 101"), ("torch 2.13.0", "torch 2.13.1"), ("10.77.0.200", "10.77.0.201")):
        assert compare([one], [other], ordered=ordered) is not None
