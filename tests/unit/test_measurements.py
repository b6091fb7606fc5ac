"""Measurements: files that come back, intervals, and what is said about scaling."""

from __future__ import annotations

import json
from dataclasses import replace

import measurements
import pytest
from measurements import Configuration, Measurement, MeasurementError, read_measurement, write_measurement

SAMPLES = {"name": "a", "parameters": {"nodes": 2}, "samples": {"wall_s": [1.0, 2]}}
MEASUREMENT = {
    "command": "python bench/start.py",
    "commit": "abc",
    "date": "2026-11-20",
    "machine": {"cores": 2},
    "versions": {"python": "3.11.7"},
    "configurations": [SAMPLES],
}


def of(**changes: object) -> dict:
    """Return a measurement whose second configuration has some fields changed."""
    return MEASUREMENT | {"configurations": [SAMPLES, SAMPLES | changes]}


def test_measurement_comes_back(tmp_path):
    """A measurement that was written is read as the same."""
    path = tmp_path / "start.json"
    measurement = Measurement.taken_now("python x", [Configuration("a", {}, {"wall_s": [1.0]})], versions={"jax": "1"})

    write_measurement(path, measurement)

    assert read_measurement(path) == measurement
    assert measurement.machine["cores"] >= 1
    assert set(measurement.versions) == {"python", "jax"}


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (MEASUREMENT | {"configurations": []}, "has no configurations"),
        (MEASUREMENT | {"host": "node1"}, "'host'"),
        (of(samples={"wall_s": [1, float("nan")]}), "'wall_s' is empty or not finite"),
        ({"command": "x"}, "'configurations'"),
    ],
)
def test_wrong_measurement(tmp_path, data, complaint):
    """A measurement of another form is rejected with the file's name and what is wrong."""
    path = tmp_path / "a.json"
    path.write_text(json.dumps(data))

    with pytest.raises(MeasurementError, match=f"a.json is no measurement: .*{complaint}"):
        read_measurement(path)


def measurement(samples: dict[int, list[float]], machine: dict | None = None, **parameters: object) -> Measurement:
    """Return a measurement with one configuration for each number of nodes."""
    configurations = [
        Configuration(f"{nodes} nodes", {"nodes": nodes, "link": "300mbit"}, {"step_s": values})
        for nodes, values in samples.items()
    ]
    stamp = {"commit": "abc", "date": "2026-11-20", "versions": {"torch": "2.13.0"}, "machine": machine or {}}
    return Measurement("python bench/x.py", configurations=configurations, parameters=parameters, **stamp)


@pytest.mark.parametrize(("count", "ranks"), [(5, (1, 5)), (6, (1, 6)), (100, (40, 61))])
def test_interval_ranks(count, ranks):
    """The ends of a 95% interval are the samples that the binomial distribution gives."""
    interval = measurements.median_interval([float(number) for number in range(1, count + 1)])

    assert (interval.low, interval.high) == ranks
    assert (interval.confidence >= 0.95) == (count >= 6)


def test_ideal_scaling():
    """Half the time on twice the nodes is a strong efficiency of 1, the same time a weak one."""
    strong = measurements.strong(measurement({2: [4.0] * 10, 4: [2.0] * 10, 8: [2.0] * 10}))
    weak = measurements.weak(measurement({1: [4.0] * 10, 4: [4.0] * 10, 8: [5.0] * 10}))

    assert [(row.speedup.value, row.efficiency.value) for row in strong.rows] == [(1, 1), (2, 1), (2, 0.5)]
    assert [(row.speedup.value, row.efficiency.value) for row in weak.rows] == [(1, 1), (4, 1), (6.4, 0.8)]


def test_the_text_states_what_it_must():
    """The text names kind, base case with its absolute time, repeats, intervals, limits, machine and source."""
    samples = {2: [4.0] * 12, 4: [2.5] * 10}
    text = measurements.strong(measurement(samples, {"cores": 2, "cpu_quota": 0.5}, batch_size=64)).text()

    assert text.splitlines()[0].split() == ["nodes", "repeats", "step_s", "speed-up", "efficiency"]
    assert text.splitlines()[2].split()[:3] == ["4", "10", "2.5"]
    for sentence in (
        "Strong scaling: the same work for any number of nodes.",
        "Base case: 2 nodes, median 4 s of 12 repeats.",
        "10 to 12 repeats. Medians, with intervals of at least 95% in brackets",
        "Measured from 2 to 4 nodes, and valid there only.",
        "Measured with: cores 2, cpu_quota 0.5, batch_size 64.",
        "Source: python bench/x.py at abc, 2026-11-20.",
    ):
        assert sentence in text
    for warning in ("Fewer than", "Too few", "Not valid", "More than"):
        assert warning not in text


def test_few_repeats_are_confessed():
    """Fewer than ten repeats are named, and so is the confidence that they reach."""
    text = measurements.strong(measurement({1: [4.0] * 10, 2: [2.5] * 5})).text()

    assert "Fewer than 10 repeats for nodes 2: read these rows as a hint." in text
    assert "Too few for 95%: the least certain interval holds with 92% only." in text


def test_where_chooses():
    """Of configurations with several links, `where` takes those of one."""
    fast, slow = (measurement({1: [4.0], 2: [seconds]}) for seconds in (2.0, 3.0))
    slow = [replace(one, parameters=one.parameters | {"link": "100mbit"}) for one in slow.configurations]
    both = replace(fast, configurations=[*fast.configurations, *slow])
    table = measurements.strong(both, where={"link": "100mbit"})

    assert table.rows[1].time.value == 3.0
    assert "link 100mbit" in table.text()
    with pytest.raises(measurements.MeasurementError, match="two configurations have 'nodes' 1: choose with where"):
        measurements.strong(both)
