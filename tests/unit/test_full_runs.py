"""The benchmark of the long forms counts what reports say."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
CASES = """<testsuites><testsuite>
<testcase classname="tests.unit.test_full_runs" name="test_a" time="1.5"/>
<testcase classname="tests.unit.test_full_runs" name="test_b[x]" time="2"><failure message="no"/></testcase>
<testcase classname="tests.unit.test_measurements" name="test_c" time="0.25"><skipped message="no"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def full_runs(monkeypatch) -> Any:
    """Import the benchmark."""
    monkeypatch.syspath_prepend(BENCH)
    return importlib.import_module("full_runs")


def test_counts(full_runs, tmp_path):
    """Each room and each file has its own counts, and a failure is named."""
    report = tmp_path / "report.xml"
    report.write_text(CASES)
    room, file, other = full_runs.rows(full_runs.read_cases(report))

    assert {name: room.samples[name] for name in ("passed", "failed", "skipped", "sum_s")} == {
        "passed": [1.0],
        "failed": [1.0],
        "skipped": [1.0],
        "sum_s": [3.8],
    }
    assert room.parameters == {"room": "tests/unit", "rows": "room", "failed_tests": "test_b[x]"}
    assert (file.name, file.samples["failed"]) == ("tests/unit/test_full_runs.py", [1.0])
    assert (other.name, other.samples["skipped"]) == ("tests/unit/test_measurements.py", [1.0])


def test_report_of_nothing(full_runs, tmp_path):
    """A report without a test is refused, not counted as a run that passed."""
    report = tmp_path / "report.xml"
    report.write_text("<testsuites/>")

    with pytest.raises(ValueError, match="no test ran"):
        full_runs.read_cases(report)
