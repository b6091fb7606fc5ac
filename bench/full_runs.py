"""What the long forms of the tests found: how many ran in each room, how many failed, and how long they took.

python bench/full_runs.py REPORT...     # writes bench/results/full_runs.json

A report is what `pytest --full -m full --junitxml=REPORT` writes. One test may be in several reports: the last one
counts.
"""

from __future__ import annotations

import argparse
import importlib.metadata
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from helpers.reports import ROOT, file_of
from helpers.typed import typed

from srunbook.measurements import Configuration, Measurement, write_measurement

RESULT = ROOT / "bench" / "results" / "full_runs.json"


@dataclass(frozen=True)
class Case:
    """One test that ran.

    Args:
        file: The file that it lies in.
        name: Its name there, with the class if it has one.
        outcome: `passed`, `failed` or `skipped`.
        seconds: How long it took, with its fixtures.
    """

    file: str
    name: str
    outcome: str
    seconds: float


def read_cases(report: Path) -> list[Case]:
    """Read all tests of a report.

    Raises:
        ValueError: The report holds no test.
        xml.etree.ElementTree.ParseError: It is no report.
    """
    cases = [_case(one) for one in ElementTree.parse(report).getroot().iter("testcase")]
    if not cases:
        raise ValueError(f"{report}: no test ran")
    return cases


def _case(found: ElementTree.Element) -> Case:
    children = {child.tag for child in found}
    outcome = "failed" if children & {"failure", "error"} else "skipped" if "skipped" in children else "passed"
    classname = found.get("classname", "")
    return Case(file_of(classname), f"{classname}::{found.get('name', '')}", outcome, float(found.get("time", 0)))


def rows(cases: list[Case]) -> list[Configuration]:
    """Return a row for each file, and one for each room, which is the folder under tests."""
    by_room: dict[str, list[Case]] = defaultdict(list)
    by_file: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        by_room["/".join(case.file.split("/")[:2])].append(case)
        by_file[case.file].append(case)
    return [
        *(_row(room, {"room": room, "rows": "room"}, found) for room, found in sorted(by_room.items())),
        *(_row(file, {"file": file, "rows": "file"}, found) for file, found in sorted(by_file.items())),
    ]


def _row(name: str, parameters: dict[str, str], cases: list[Case]) -> Configuration:
    counts = {
        outcome: [float(sum(case.outcome == outcome for case in cases))] for outcome in ("passed", "failed", "skipped")
    }
    failed = [case.name.rpartition("::")[2] for case in cases if case.outcome == "failed"]
    named = parameters | ({"failed_tests": ", ".join(failed)} if failed else {})
    return Configuration(name, named, counts | {"sum_s": [round(sum(case.seconds for case in cases), 1)]})


def main() -> None:
    """Read the reports, and write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("reports", nargs="+", type=Path, help="reports by pytest's --junitxml")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    try:
        latest = {case.name: case for report in options.reports for case in read_cases(report)}
    except (OSError, ValueError, ElementTree.ParseError) as error:
        parser.error(str(error))
    write_measurement(
        options.output,
        Measurement.taken_now(
            typed(), rows([*latest.values()]), versions={"pytest": importlib.metadata.version("pytest")}
        ),
    )


if __name__ == "__main__":
    main()
