"""Measurements: what is written is read again, and another form is refused by the name of its field."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srunbook.measurements import Configuration, Measurement, MeasurementError, read_measurement, write_measurement

SAMPLES = {"name": "a", "parameters": {"nodes": 2}, "samples": {"wall_s": [1.0, 2]}}
MEASUREMENT = {
    "command": "python bench/start.py",
    "commit": "abc",
    "date": "2026-11-20",
    "machine": {"cores": 2},
    "versions": {"python": "3.11.7"},
    "configurations": [SAMPLES],
}


def without(data: dict, name: str) -> dict:
    """Return the same data without one field."""
    return {key: value for key, value in data.items() if key != name}


def of(**changes: object) -> dict:
    """Return a measurement whose second configuration has some fields changed."""
    return MEASUREMENT | {"configurations": [SAMPLES, SAMPLES | changes]}


def test_measurement_comes_back(tmp_path):
    """A measurement that was written is read as the same."""
    path = tmp_path / "start.json"
    measurement = Measurement.taken_now("python x", [Configuration("a", {}, {"wall_s": [1.0]})], versions={"jax": "1"})

    assert write_measurement(path, measurement)
    assert not write_measurement(path, measurement)  # nothing changed, nothing written
    assert read_measurement(path) == measurement
    assert measurement.machine["cores"] >= 1
    assert set(measurement.versions) == {"python", "jax"}


def test_whole_numbers_are_samples(tmp_path):
    """A whole number is a sample like any other."""
    path = tmp_path / "start.json"
    path.write_text(json.dumps(MEASUREMENT))

    assert read_measurement(path).configurations[0].samples == {"wall_s": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (MEASUREMENT | {"configurations": []}, "has no configurations"),
        (MEASUREMENT | {"date": "yesterday"}, "'date' is 'yesterday'"),
        (MEASUREMENT | {"date": "2026-02-30"}, "'date' is '2026-02-30'"),
        (MEASUREMENT | {"schema": 0}, "has schema 0; this version reads 1"),
        (MEASUREMENT | {"schema": True}, "field 'schema' should be a valid integer, found True"),
        (MEASUREMENT | {"host": "node1"}, "unknown field 'host'; known are command, commit, configurations"),
        (
            MEASUREMENT | {"machine": {"cores": True}},
            "field 'machine.cores' should be a valid string or a valid integer or a valid number, found True",
        ),
        (MEASUREMENT | {"machine": {"memory_GiB": float("inf")}}, "'machine' holds inf, which is not finite"),
        (MEASUREMENT | {"parameters": {"sizes": [1, {"x": float("nan")}]}}, "'parameters' holds nan"),
        (without(MEASUREMENT, "machine"), "field 'machine' is missing"),
        (without(MEASUREMENT, "command"), "field 'command' is missing"),
        (MEASUREMENT | {"configurations": [3]}, "field 'configurations.0' should be an object, found 3"),
        (of(date="2026-11-20"), "unknown field 'configurations.1.date'"),
        (of(name=1), "field 'configurations.1.name' should be a valid string, found 1"),
        (of(parameters={"x": float("nan")}), "'parameters' holds nan"),
        (of(samples={}), "'a' has no samples"),
        (of(samples={"wall_s": []}), "'wall_s' is empty or not finite"),
        (of(samples={"wall_s": [10**400]}), "'wall_s' is empty or not finite"),
        (of(samples={"wall_s": [1, float("nan")]}), "'wall_s' is empty or not finite"),
        (of(samples={"wall_s": ["1.0"]}), "field 'configurations.1.samples.wall_s.0' should be a valid number"),
        (of(samples={"wall_s": [1.0, True]}), "field 'configurations.1.samples.wall_s.1' should be a valid number"),
        (MEASUREMENT | {"configurations": [without(SAMPLES, "samples")]}, "'configurations.0.samples' is missing"),
        ([], r"expected an object, found \[\]"),
    ],
)
def test_wrong_measurement(tmp_path, data, complaint):
    """A measurement of another form is refused in one line that names the file and the field."""
    path = tmp_path / "a.json"
    path.write_text(json.dumps(data))

    with pytest.raises(MeasurementError, match=f"a.json: .*{complaint}") as caught:
        read_measurement(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"), [(None, "no such file"), ("{", "not JSON"), ("[" * 100_000, "not JSON")]
)
def test_unreadable_file(tmp_path, text, complaint):
    """A missing file, and one that is not JSON, are named with their path."""
    path = tmp_path / "a.json"
    if text is not None:
        path.write_text(text)

    with pytest.raises(MeasurementError, match=f"a.json: {complaint}"):
        read_measurement(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400])
def test_what_cannot_be_drawn_is_not_written_either(value):
    """A sample, or a parameter, that is infinite or undefined is refused where it is measured."""
    with pytest.raises(MeasurementError, match="not finite"):
        Configuration("a", {}, {"wall_s": [1.0, value]})
    with pytest.raises(MeasurementError, match="not finite"):
        Configuration("a", {"sizes": [value]}, {"wall_s": [1.0]})


def test_writing_needs_no_pydantic(tmp_path):
    """A program measures and writes where pydantic is not installed; reading asks for it."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "sys.modules['pydantic'] = None\n"
        "from srunbook.measurements import Configuration, Measurement, read_measurement, write_measurement\n"
        "path = Path(sys.argv[1])\n"
        "found = Configuration('a', {}, {'wall_s': [1.0]})\n"
        "write_measurement(path, Measurement.taken_now('x', [found], versions={}))\n"
        "try:\n"
        "    read_measurement(path)\n"
        "except ModuleNotFoundError as error:\n"
        "    print(error.name)\n"
    )
    path = tmp_path / "a.json"

    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "pydantic\n", "")
    assert read_measurement(path).command == "x"


@given(st.lists(st.floats(0, 1e9), min_size=1))
def test_median_lies_among_the_samples(samples):
    """A median is at least the smallest and at most the largest sample."""
    median = Configuration("a", {}, {"wall_s": samples}).median("wall_s")

    assert min(samples) <= median <= max(samples)
