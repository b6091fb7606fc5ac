"""What tests cost: the seconds of the test files that take longest, and of each session as a whole.

python bench/test_costs.py                            # writes bench/results/test_costs.json
python bench/test_costs.py --parameter workers=3      # with what else is to be said of the runs

It reads the reports in build/junit, each named after its session. Seconds of a test file add up its tests with their
fixtures, whichever worker ran them; the wall time is that of the whole session.
"""

from __future__ import annotations

import argparse
import importlib.metadata
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

from helpers.program import write
from measurements import Configuration

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "bench" / "results" / "test_costs.json"
REPORTS = ROOT / "build" / "junit"
DEAREST = 12
"""Files of each session that count by themselves."""


def costs(session: str, report: Path) -> list[Configuration]:
    """Read the report of a session.

    Args:
        session: Name of the session.
        report: Its file in JUnit's format.

    Returns:
        The session as a whole, and then the files that take longest.

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
    for file, seconds in sorted(files.items(), key=lambda item: -sum(item[1]))[:DEAREST]:
        parameters = {"session": session, "file": file, "rows": "dearest"}
        samples = {"tests": [float(len(seconds))], "sum_s": [round(sum(seconds), 3)], "longest_test_s": [max(seconds)]}
        rows.append(Configuration(f"{session}: {file}", parameters, samples))
    return rows


def file_of(classname: str) -> str:
    """Return the path of the file that a test lies in, from the dotted name that the report gives it."""
    parts = [part for part in classname.split(".") if part]
    for end in range(len(parts), 0, -1):
        path = Path(*parts[:end]).with_suffix(".py")
        if (ROOT / path).is_file():
            return path.as_posix()
    return classname or "no file"


def pair(text: str) -> tuple[str, str]:
    """Split an argument such as `workers=3`."""
    name, _, value = text.partition("=")
    return name, value


def main() -> None:
    """Read the reports, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parameter", type=pair, action="append", default=[], metavar="NAME=VALUE", help="of the runs")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    rows = [row for path in sorted(REPORTS.glob("*.xml")) for row in costs(path.stem, path)]
    if not rows:
        parser.error(f"no reports in {REPORTS.relative_to(ROOT)}: run the sessions first")
    write(
        options.output,
        rows,
        versions={"pytest": importlib.metadata.version("pytest")},
        parameters=dict(options.parameter),
    )


if __name__ == "__main__":
    main()
