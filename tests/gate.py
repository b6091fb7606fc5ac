"""Run tests with a second look at what failed, and sum up what the sessions found.

python tests/gate.py run unit --workers 3 -- tests/unit   # pytest; what fails runs once more, alone
python tests/gate.py flaky docs "plot_a.py: OSError"      # note something that passed at the second try
python tests/gate.py summary lint:61:0 unit:412:1         # sessions with their seconds and exit status

A test may fail because the machine was busy, another test was in its way, or a port was taken. So what failed runs
again in a fresh process, with nothing beside it. If it passes then, it is reported as flaky: mend the cause. A test
that fails twice is red, and so are more than five that failed at first. `build/flaky.json` keeps the flaky names.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

FLAKY = Path("build/flaky.json")
REPORTS = Path("build/junit")
SECOND = Path("build/second-look")
AT_MOST = 5
"""So many tests may fail at first and have a second look. More is no accident."""

TESTS_FAILED = 1
"""Pytest's exit status when all tests ran and some failed. Others mean that it was interrupted or started wrongly."""


def cases(report: Path) -> dict[str, tuple[str, str]]:
    """Return for each test of a JUnit report how it ended and the first line of its error, by node id."""
    found: dict[str, tuple[str, str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        file, name, classes = case.get("file", ""), case.get("name", ""), case.get("classname", "")
        classes = classes.removeprefix(file.removesuffix(".py").replace("/", ".")).strip(".")
        test = "::".join(filter(None, [file, *(classes.split(".") if file else []), name]))
        wrong = case.find("failure") if case.find("failure") is not None else case.find("error")
        if wrong is not None:
            found[test] = ("failed", next(iter((wrong.get("message") or "").strip().splitlines()), ""))
        elif found.get(test, ("", ""))[0] != "failed":  # a test and its teardown have an element each
            found[test] = ("skipped" if case.find("skipped") is not None else "passed", "")
    return found


def failed(report: Path) -> dict[str, str]:
    """Return the first line of the error of each test that failed, by node id."""
    return {test: error for test, (outcome, error) in cases(report).items() if outcome == "failed"}


def flaky_names() -> dict[str, list[str]]:
    """Return what was flaky, by session."""
    return dict(json.loads(FLAKY.read_text(encoding="utf-8"))) if FLAKY.exists() else {}


def keep(session: str, lines: list[str]) -> None:
    """Keep what was flaky in a session, in place of what was there before."""
    FLAKY.parent.mkdir(parents=True, exist_ok=True)
    FLAKY.write_text(json.dumps({**flaky_names(), session: lines}, indent=2) + "\n", encoding="utf-8")


def run(session: str, workers: int, arguments: list[str]) -> int:
    """Run pytest, and what failed once more; return an exit status."""
    keep(session, [])
    first, second = REPORTS / f"{session}.xml", SECOND / f"{session}.xml"
    for report in (first, second):
        report.unlink(missing_ok=True)
    pytest = [sys.executable, "-m", "pytest", "-o", "junit_family=xunit1"]
    parallel = ["-n", str(workers), "--dist", "loadscope"] if workers else []
    status = subprocess.run([*pytest, *parallel, f"--junitxml={first}", *arguments], check=False).returncode
    if status != TESTS_FAILED or not first.exists():
        return status
    at_first = failed(first)
    if len(at_first) > AT_MOST:
        print(f"red: {len(at_first)} tests failed; at most {AT_MOST} have a second look", flush=True)
        return status
    print(f"a second look, alone, at {len(at_first)} that failed", flush=True)
    again = ["--last-failed", "--last-failed-no-failures", "none", f"--junitxml={second}"]
    status = subprocess.run([*pytest, *again, *arguments], check=False).returncode
    ended = cases(second) if second.exists() else {}
    flaky = [f"{x}: {error}" for x, error in at_first.items() if ended.get(x, ("", ""))[0] == "passed"]
    keep(session, flaky)
    for line in flaky:
        print(f"flaky: {line}", flush=True)
    return status or (0 if len(flaky) == len(at_first) else TESTS_FAILED)


def summary(sessions: list[str]) -> int:
    """Print a line for each session, then what failed and what was flaky; return 1 if any session was red."""
    flaky = flaky_names()
    bad = []
    red = [name for name, _, status in (x.split(":") for x in sessions) if status != "0"]
    print(f"\n{'session':<10}{'time':>8}{'passed':>8}{'failed':>8}{'flaky':>8}")
    for name, seconds, status in (x.split(":") for x in sessions):
        report = REPORTS / f"{name}.xml"
        outcomes = [outcome for outcome, _ in cases(report).values()] if report.exists() else []
        unsteady = flaky.get(name, [])
        twice = [f"{x}: {error}" for x, error in (failed(report) if outcomes else {}).items()]
        twice = [line for line in twice if line not in unsteady]
        bad += twice
        counts = [outcomes.count("passed"), len(twice), len(unsteady)]
        time = f"{int(seconds) // 60}:{int(seconds) % 60:02}"
        print(f"{name:<10}{time:>8}" + "".join(f"{count:>8}" for count in counts) + ("" if status == "0" else "  red"))
    for line in bad:
        print(f"failed: {line}")
    for line in (line for lines in flaky.values() for line in lines):
        print(f"flaky: {line}")
    print(f"red: {', '.join(red)}" if red else "green")
    return 1 if red else 0


def main() -> int:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run", help="run pytest, and what failed once more")
    one.add_argument("session")
    one.add_argument("--workers", type=int, default=0, help="processes of the first look; 0 is pytest's own")
    one.epilog = "What follows -- goes to pytest."
    one = commands.add_parser("flaky", help="note what passed at the second try")
    one.add_argument("session")
    one.add_argument("line")
    one = commands.add_parser("summary", help="sum up")
    one.add_argument("sessions", nargs="+", metavar="NAME:SECONDS:STATUS")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    given = parser.parse_args(sys.argv[1:at])
    if given.command == "run":
        return run(given.session, given.workers, sys.argv[at + 1 :])
    if given.command == "flaky":
        keep(given.session, [*flaky_names().get(given.session, []), given.line])
        return 0
    return summary(given.sessions)


if __name__ == "__main__":
    sys.exit(main())
