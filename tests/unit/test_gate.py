"""What the gate lets through: a test that fails once is reported, one that fails twice is red."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

GATE = Path(__file__).resolve().parents[1] / "gate.py"

ONCE = """
from pathlib import Path

def test_once():
    before = Path("seen").exists()
    Path("seen").touch()
    assert before, "the port is taken"
"""

RED = "def test_always(): raise OSError('the disk is full')\n"

GREEN = "def test_fine(): pass\n"

SIX = "".join(ONCE.replace("once", f"once{number}").replace("seen", f"seen{number}") for number in range(6))

GONE = ONCE.replace("    assert", "    if before:\n        import pytest\n        pytest.skip()\n    assert")


def gate(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run the gate in a folder; return its exit status and what it printed."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, str(GATE), *arguments]
    result = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, check=False)
    return result.returncode, result.stdout + result.stderr


@pytest.mark.parametrize("workers", ["0", "2"])
def test_red_once_and_then_green_is_reported_and_passes(tmp_path, workers):
    """The name and the first line of the error are printed, and kept for the summary."""
    (tmp_path / "test_a.py").write_text(ONCE + GREEN)

    status, printed = gate(tmp_path, "run", "unit", f"--workers={workers}", "--", "test_a.py")

    line = "test_a.py::test_once: AssertionError: the port is taken"
    assert (status, f"flaky: {line}\n" in printed) == (0, True), printed
    assert json.loads((tmp_path / "build" / "gate.json").read_text())["unit"]["flaky"] == [line]
    status, printed = gate(tmp_path, "summary", "lint:61:0", "unit:7:0")
    assert status == 0
    assert [" ".join(text.split()) for text in printed.splitlines()[-4:]] == [
        "lint 1:01 0 0 0 0 0",
        "unit 0:07 1 0 0 0 1",
        f"flaky: {line}",
        "green",
    ]
    assert gate(tmp_path, "run", "unit", "--", "test_a.py")[0] == 0  # green at once: the name is forgotten
    assert json.loads((tmp_path / "build" / "gate.json").read_text()) == {"unit": {"stood": []}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (RED + GREEN, "failed: test_a.py::test_always: OSError: the disk is full"),
        (SIX, "red: 6 tests failed; at most 5 have a second look"),
        (GONE, "failed: test_a.py::test_once: AssertionError: the port is taken"),
        ("import nowhere", "failed: test_a"),
    ],
    ids=["always red", "six at first", "skipped at the second look", "cannot be imported"],
)
def test_what_stays_red(tmp_path, text, said):
    """The exit status is not 0, and the summary names what failed."""
    (tmp_path / "test_a.py").write_text(text)

    status, printed = gate(tmp_path, "run", "unit", "--", "test_a.py")
    assert status != 0, printed
    assert "flaky:" not in printed
    summary, more = gate(tmp_path, "summary", f"unit:7:{status}")
    assert summary == 1
    assert more.splitlines()[-1] == "red: unit"
    assert said in printed + more


NOTING = """
def pytest_addoption(parser):
    parser.addoption("--changed")

def pytest_collection_modifyitems(items):
    for item in items:
        item.user_properties.append(("inputs", "0123"))
"""


def test_inputs_of_what_passed_are_kept(tmp_path):
    """The file names each test that passed, also at the second look, and no longer those whose file has gone."""
    (tmp_path / "conftest.py").write_text(NOTING)
    (tmp_path / "test_a.py").write_text(ONCE + GREEN + RED)
    (tmp_path / "tests").mkdir()
    kept = tmp_path / "tests" / "passed.txt"
    kept.write_text("4567 test_a.py::test_always\n4567 test_a.py::test_fine\n4567 test_gone.py::test_a\n")

    gate(tmp_path, "run", "unit", "--", "test_a.py")
    expected = ["4567 test_a.py::test_always", "0123 test_a.py::test_fine", "0123 test_a.py::test_once"]
    assert kept.read_text().splitlines() == expected


@pytest.mark.parametrize(
    ("inputs", "option", "status"), [("0123", ["--changed"], 0), ("4567", ["--changed"], 1), ("0123", [], 1)]
)
def test_drift_is_not_red(tmp_path, inputs, option, status):
    """A test that passed with the same inputs and fails twice is reported, and red only where all tests run."""
    (tmp_path / "conftest.py").write_text(NOTING)
    (tmp_path / "test_a.py").write_text(RED + GREEN)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "passed.txt").write_text(f"{inputs} test_a.py::test_always\n")

    found, printed = gate(tmp_path, "run", "unit", *option, "--", "test_a.py")
    assert found == status, printed
    _, printed = gate(tmp_path, "summary", f"unit:7:{found}")
    assert ("drift: test_a.py::test_always\n    OSError: the disk is full" in printed) == (status == 0), printed
    assert ("failed: test_a.py::test_always: OSError" in printed) == (status == 1), printed
