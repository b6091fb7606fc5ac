"""The shared formats: what they write they read again, and what has another form is refused by name."""

from __future__ import annotations

import json
import os
import re
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srunbook.formats import (
    Configuration,
    EndRecord,
    FormatError,
    Mask,
    Measurement,
    Recording,
    StartRecord,
    compare,
    parse_records,
    read_measurement,
    read_recording,
    recording_path,
    write_measurement,
    write_recording,
    write_whole,
)

START = {
    "event": "start",
    "rank": 1,
    "world_size": 4,
    "local_rank": 1,
    "host": "node1",
    "pid": 71,
    "backend": "gloo",
    "device": "cpu",
    "framework": "jax 0.10.2",
    "job": "17",
}
RECORDING = {
    "command": "sbatch allreduce.sbatch",
    "where": "slurm",
    "date": "2026-11-20",
    "source_sha256": "0" * 64,
    "output": ["y=[8.]"],
}
MEASUREMENT = {
    "command": "python bench/start.py",
    "commit": "abc",
    "date": "2026-11-20",
    "machine": {"cores": 2},
    "versions": {"python": "3.11.7"},
    "configurations": [{"name": "a", "parameters": {"nodes": 2}, "samples": {"wall_s": [1.0, 2]}}],
}


SHA256 = st.text("0123456789abcdef", min_size=64, max_size=64)


def without(data: dict, name: str) -> dict:
    """The same data without one field."""
    return {key: value for key, value in data.items() if key != name}


# Run records


@pytest.mark.parametrize("label", ["", "[1] ", "1: ", "node1: ", "0: [Gloo] Rank ", "[Gloo] Rank 1"])
@pytest.mark.parametrize("rest", ["", "\r", "1 is connected to 3 peer ranks. ", "[Gloo] Rank ", '{"rank": 2}'])
def test_record_with_label(label, rest):
    """A start record is found behind the label of any launcher, and where another thread wrote to its line."""
    [record] = parse_records([f"{label}record {json.dumps(START)}{rest}", "something else"])

    assert record == StartRecord(**without(START, "event"))


def test_record_without_job():
    """Outside a job a start record has no job id, or null."""
    for data in (without(START, "job"), START | {"job": None}):
        [record] = parse_records([f"record {json.dumps(data)}"])

        assert record.job is None


def test_record_with_epochs():
    """A start record may say how many epochs its rank was asked for."""
    [record] = parse_records([f"record {json.dumps(START | {'epochs': 10})}"])

    assert record.epochs == 10


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('record {"event": "end", "rank": 0', "not JSON"),
        ('record {"event": "middle", "rank": 0}', "unknown event 'middle'; known are start, end"),
        ('record {"event": "end", "rank": 0}', "field 'steps' is missing"),
        ('record {"event": "end", "rank": "0", "steps": 1}', "field 'rank' should be <class 'int'>, found '0'"),
        ('record {"event": "end", "rank": true, "steps": 1}', "field 'rank'"),
        ('record {"event": "end", "rank": 0, "steps": 1, "loss": 2}', "unknown field 'loss'"),
        ('record {"event": ["end"], "rank": 0}', "unknown event ['end']"),
        ('record {"event": {"end": 1}}', "unknown event"),
        ('record {"event": null}', "unknown event None"),
        ('record {"event": "end", "rank": ' + "[" * 100_000, "not JSON (nested too deeply)"),
        ('record {"rank": 0, "event": "middle"}', "unknown event 'middle'"),
        ('record { "event": "end", "rank": 0 }', "field 'steps' is missing"),
        ('record {"rank": 0, "steps', "not JSON"),
        ('record {"event": "end", "rank": -1, "steps": 1}', "'rank' is -1; it is 0 or more"),
        ('record {"event": "end", "rank": 0, "steps": -1}', "'steps' is -1; it is 0 or more"),
        (
            'record {"event": "end", "rank": 0, "steps": 1, "params_sha256": "f00"}',
            "'params_sha256' is 'f00'; it is 64",
        ),
        (f"record {json.dumps(START | {'rank': -1})}", "'rank' is -1; it is 0 or more"),
        (f"record {json.dumps(START | {'local_rank': -1})}", "'local_rank' is -1"),
        (f"record {json.dumps(START | {'rank': 4})}", "'rank' is 4 in a world of 4"),
        (f"record {json.dumps(START | {'epochs': -1})}", "'epochs' is -1; it is 0 or more"),
    ],
)
def test_wrong_record(line, complaint):
    """A line that announces a record but holds none is refused, and says why."""
    with pytest.raises(FormatError, match=re.escape(complaint)):
        parse_records([line])


@pytest.mark.parametrize(
    "line", ['{"rank": 0, "event": "end", "steps": 2}', '{ "steps": 2, "rank": 0, "event": "end"} ']
)
def test_record_in_any_order(line):
    """The fields of a record may stand in any order, with spaces or without."""
    assert parse_records([f"[0] record {line}"]) == [EndRecord(rank=0, steps=2)]


@pytest.mark.parametrize(
    "line", ["record {n} of {m}", 'record {"rank": 0}', 'a record "event"', 'record: {"event": 1}']
)
def test_no_record(line):
    """A line that only resembles a record is other output."""
    assert parse_records([line]) == []


@given(st.lists(st.builds(EndRecord, st.integers(0, 999), st.integers(0), st.none() | SHA256)))
def test_records_keep_their_order(records):
    """Records come back as they were printed, in the order of the output."""
    lines = []
    for record in records:
        lines += ["noise", "record " + json.dumps({"event": "end", **vars(record)})]

    assert parse_records(lines) == records


# Recordings


def test_recording_path(tmp_path):
    """A recording lies beside its file, under the file's stem."""
    assert recording_path(tmp_path / "allreduce.sbatch") == tmp_path / "allreduce.recording.json"


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
        (RECORDING | {"date": "\uff12026-11-20"}, "'date' is"),
        (RECORDING | {"also": [{"slurm": "24.11.5", "date": "2026-02-30"}]}, "'date' is '2026-02-30'"),
        (RECORDING | {"source_sha256": "f00"}, "'source_sha256' is 'f00'; it is 64 hexadecimal digits"),
        (RECORDING | {"source_sha256": "G" * 64}, "'source_sha256' is"),
        (RECORDING | {"output": ["one\ntwo"]}, "'output' has the line 'one.ntwo', which holds a line break"),
        (RECORDING | {"schema": 2}, "recording has schema 2; this version reads 1"),
        (RECORDING | {"output": "y"}, "field 'output' should be"),
        (RECORDING | {"output": ["y", 1]}, "field 'output' should be"),
        (RECORDING | {"versions": {"jax": 10}}, "field 'versions' should be"),
        (RECORDING | {"host": "node1"}, "unknown field 'host'; known are accounting, also, command"),
        (without(RECORDING, "command"), "field 'command' is missing"),
        ([], "expected an object, found list"),
    ],
)
def test_wrong_recording(tmp_path, data, complaint):
    """A recording of another form is refused, and the field is named."""
    path = tmp_path / "a.recording.json"
    path.write_text(json.dumps(data))

    with pytest.raises(FormatError, match=complaint):
        read_recording(path)


@pytest.mark.parametrize(
    ("text", "complaint"), [(None, "no such file"), ("{", "not JSON"), ("[" * 100_000, "not JSON")]
)
def test_unreadable_file(tmp_path, text, complaint):
    """A missing file, and one that is no JSON, are named with their path."""
    path = tmp_path / "a.json"
    if text is not None:
        path.write_text(text)

    with pytest.raises(FormatError, match=f"a.json: {complaint}"):
        read_recording(path)


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


# Measurements


def test_measurement_comes_back(tmp_path):
    """A measurement that was written is read as the same."""
    path = tmp_path / "start.json"
    measurement = Measurement.taken_now("python x", [Configuration("a", {}, {"wall_s": [1.0]})], versions={"jax": "1"})

    assert write_measurement(path, measurement)
    assert read_measurement(path) == measurement
    assert measurement.machine["cores"] >= 1
    assert set(measurement.versions) == {"python", "jax"}


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (MEASUREMENT | {"configurations": []}, "has no configurations"),
        (MEASUREMENT | {"date": "yesterday"}, "'date' is 'yesterday'"),
        (MEASUREMENT | {"schema": 0}, "has schema 0; this version reads 1"),
        (without(MEASUREMENT, "machine"), "field 'machine' is missing"),
        (MEASUREMENT | {"configurations": [{"name": "a", "parameters": {}}]}, "field 'samples' is missing"),
        (MEASUREMENT | {"date": "2026-02-30"}, "'date' is '2026-02-30'"),
        (MEASUREMENT | {"configurations": [{"name": "a", "parameters": {}, "samples": {}}]}, "'a' has no samples"),
        (MEASUREMENT | {"machine": {"memory_GiB": float("inf")}}, "'machine' holds inf, which is not finite"),
        (MEASUREMENT | {"parameters": {"sizes": [1, {"x": float("nan")}]}}, "'parameters' holds nan"),
        (
            MEASUREMENT
            | {"configurations": [{"name": "a", "parameters": {"x": float("nan")}, "samples": {"wall_s": [1]}}]},
            "'parameters' holds nan",
        ),
        (
            MEASUREMENT | {"configurations": [{"name": "a", "parameters": {}, "samples": {"wall_s": [10**400]}}]},
            "'wall_s' is empty or not finite",
        ),
        (
            MEASUREMENT | {"configurations": [{"name": "a", "parameters": {}, "samples": {"wall_s": []}}]},
            "'wall_s' is empty or not finite",
        ),
        (
            MEASUREMENT
            | {"configurations": [{"name": "a", "parameters": {}, "samples": {"wall_s": [1, float("nan")]}}]},
            "'wall_s' is empty or not finite",
        ),
    ],
)
def test_wrong_measurement(tmp_path, data, complaint):
    """A measurement of another form is refused, and the field is named."""
    path = tmp_path / "a.json"
    path.write_text(json.dumps(data))

    with pytest.raises(FormatError, match=complaint):
        read_measurement(path)


@given(st.lists(st.floats(0, 1e9), min_size=1))
def test_median_lies_among_the_samples(samples):
    """A median is at least the smallest and at most the largest sample."""
    median = Configuration("a", {}, {"wall_s": samples}).median("wall_s")

    assert min(samples) <= median <= max(samples)


# Files


def test_whole_file_or_none(tmp_path, monkeypatch):
    """A write that fails leaves the old file and nothing beside it."""
    path = tmp_path / "a.json"
    write_whole(path, "old")
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))

    with pytest.raises(OSError, match="disk full"):
        write_whole(path, "new")

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_written_file_follows_the_umask(tmp_path, umask, mode):
    """A written file may be read by those who may read any other file that its owner makes."""
    path = tmp_path / "a.json"
    earlier = os.umask(umask)
    try:
        write_whole(path, "text")
    finally:
        os.umask(earlier)

    assert stat.S_IMODE(path.stat().st_mode) == mode
