"""What each test costs: the seconds of each test file, and of each session as a whole.

python bench/test_costs.py tests=tests.xml slurm=slurm.xml    # writes bench/results/test_costs.json
python bench/test_costs.py tests=tests.xml --parameter workers=3 --output here.json

The reports are those that `nox -s tests -- --junitxml=tests.xml` writes; without arguments, the program reads all in
build/junit, each named after its session. Seconds of a test file add up its tests with
their fixtures, whichever worker ran them; the wall time is that of the whole session.
"""

from __future__ import annotations

import argparse
import importlib.metadata
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

from helpers.reports import ROOT, file_of, pair
from helpers.typed import typed

from srunbook.measurements import Configuration, Measurement, write_measurement

RESULT = ROOT / "bench" / "results" / "test_costs.json"
REPORTS = ROOT / "build" / "junit"
DEAREST = 12
"""Files of each session that a page shows."""


def costs(session: str, report: Path) -> list[Configuration]:
    """Read the report of a session.

    Args:
        session: Name of the session.
        report: Its file in JUnit's format.

    Returns:
        The session as a whole, and then its files, the dearest first.

    Raises:
        ValueError: The report is of no run, or of one that did not pass.
    """
    (suite,) = ElementTree.parse(report).getroot().iter("testsuite")
    cases = list(suite.iter("testcase"))
    failed = int(suite.get("errors", 0)) + int(suite.get("failures", 0))
    if failed or not cases:
        raise ValueError(f"{report}: {failed} of {len(cases)} tests failed; give the report of a run that passed")
    files: dict[str, list[float]] = defaultdict(list)
    for case in cases:
        files[file_of(case.get("classname", ""))].append(float(case.get("time", 0)))
    whole = {"tests": [float(len(cases))], "wall_s": [float(suite.get("time", 0))]}
    rows = [Configuration(f"{session}: all", {"session": session, "rows": "whole"}, whole)]
    for place, (file, seconds) in enumerate(sorted(files.items(), key=lambda item: -sum(item[1]))):
        among = "dearest" if place < DEAREST else "others"
        parameters = {"session": session, "file": file, "rows": among}
        samples = {"tests": [float(len(seconds))], "sum_s": [round(sum(seconds), 3)], "longest_test_s": [max(seconds)]}
        rows.append(Configuration(f"{session}: {file}", parameters, samples))
    return rows


def main() -> None:
    """Read the reports, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reports", type=pair, nargs="*", metavar="SESSION=FILE", help="reports by pytest's --junitxml")
    parser.add_argument("--parameter", type=pair, action="append", default=[], metavar="NAME=VALUE", help="of the runs")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    reports = options.reports or [(path.stem, str(path)) for path in sorted(REPORTS.glob("*.xml"))]
    if not reports:
        parser.error(f"no reports: name some, as in tests=tests.xml, or put them into {REPORTS.relative_to(ROOT)}")
    try:
        rows = [row for session, report in reports for row in costs(session, Path(report))]
    except (OSError, ValueError, ElementTree.ParseError) as error:
        parser.error(str(error))
    measurement = Measurement.taken_now(
        typed(),
        rows,
        versions={"pytest": importlib.metadata.version("pytest")},
        parameters=dict(options.parameter),
    )
    write_measurement(options.output, measurement)


if __name__ == "__main__":
    main()
