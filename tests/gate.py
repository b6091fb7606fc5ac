"""Run tests with a second look at what failed, and sum up what the sessions found.

python tests/gate.py run unit --workers 3 -- tests/unit   # pytest; what fails runs once more, alone
python tests/gate.py flaky docs "plot_a.py: OSError"      # note something that passed at the second try
python tests/gate.py summary lint:61:0 unit:412:1         # sessions with their seconds and exit status

A test may fail because the machine was busy, another test was in its way, or a port was taken. So what failed runs
again in a fresh process, with nothing beside it. If it passes then, it is reported as flaky: mend the cause. A test
that fails twice is red, and so are more than five that failed at first.

Tests of programs and job scripts note what they depend on (tests/support/inputs.py). `tests/passed.txt` keeps with
which inputs each has passed. With `--changed` those that passed with the same inputs stand: only a seventh of them run,
another one each day. One of these that fails twice has drifted, because something changed that is not among its inputs.
That is reported and not red, so that it stops nobody's sound work: mend it next.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

NOTES = Path("build/gate.json")
PASSED = Path("tests/passed.txt")
STOOD = Path("build/stood.txt")
REPORTS = Path("build/junit")
SECOND = Path("build/second-look")
AT_MOST = 5
"""So many tests may fail at first and have a second look. More is no accident."""

DIFFERENCE = 20
"""Lines of the error of a test that has drifted, in the summary."""

TESTS_FAILED = 1
"""Pytest's exit status when all tests ran and some failed. Others mean that it was interrupted or started wrongly."""


class Case(NamedTuple):
    """How a test ended, its error, and the hash of its inputs."""

    outcome: str
    error: str = ""
    inputs: str = ""

    @property
    def first_line(self) -> str:
        """Return the first line of the error."""
        return next(iter(self.error.strip().splitlines()), "")


def cases(report: Path) -> dict[str, Case]:
    """Return how each test of a JUnit report ended, by node id; nothing where there is no report."""
    found: dict[str, Case] = {}
    for case in ElementTree.parse(report).iter("testcase") if report.exists() else ():
        file, name, classes = case.get("file", ""), case.get("name", ""), case.get("classname", "")
        classes = classes.removeprefix(file.removesuffix(".py").replace("/", ".")).strip(".")
        test = "::".join(filter(None, [file, *(classes.split(".") if file else []), name]))
        inputs = next((x.get("value", "") for x in case.iter("property") if x.get("name") == "inputs"), "")
        wrong = case.find("failure") if case.find("failure") is not None else case.find("error")
        if wrong is not None:
            found[test] = Case("failed", wrong.get("message") or "", inputs)
        elif test not in found or found[test].outcome != "failed":  # a test and its teardown have an element each
            found[test] = Case("skipped" if case.find("skipped") is not None else "passed", "", inputs)
    return found


def notes() -> dict[str, dict[str, list[str]]]:
    """Return what was flaky, what had drifted, and what stood, by session."""
    return dict(json.loads(NOTES.read_text(encoding="utf-8"))) if NOTES.exists() else {}


def note(session: str, **lines: list[str]) -> None:
    """Note something about a session, in place of what was noted there before."""
    NOTES.parent.mkdir(parents=True, exist_ok=True)
    NOTES.write_text(json.dumps({**notes(), session: lines}, indent=2) + "\n", encoding="utf-8")


def passed_before() -> dict[str, str]:
    """Return the inputs with which each test has passed, by node id."""
    lines = PASSED.read_text(encoding="utf-8").splitlines() if PASSED.exists() else []
    return {test: inputs for inputs, _, test in (line.partition(" ") for line in lines)}


def keep_passed(ended: dict[str, Case]) -> None:
    """Keep the inputs of the tests that passed, and forget tests whose file has gone."""
    new = {test: case.inputs for test, case in ended.items() if case.inputs and case.outcome == "passed"}
    if new:
        kept = {test: inputs for test, inputs in passed_before().items() if Path(test.partition("::")[0]).exists()}
        lines = [f"{inputs} {test}\n" for test, inputs in sorted({**kept, **new}.items())]
        PASSED.write_text("".join(lines), encoding="utf-8")


def run(session: str, workers: int, changed: bool, arguments: list[str]) -> int:
    """Run pytest, and what failed once more; return an exit status."""
    note(session)
    first, second = REPORTS / f"{session}.xml", SECOND / f"{session}.xml"
    for left in (first, second, STOOD):
        left.unlink(missing_ok=True)
    pytest = [sys.executable, "-m", "pytest", "-o", "junit_family=xunit1"]
    parallel = ["-n", str(workers), "--dist", "loadscope"] if workers else []
    today = [f"--changed={int(time.time() // 86400)}"] if changed else []
    status = subprocess.run([*pytest, *parallel, f"--junitxml={first}", *today, *arguments], check=False).returncode
    stood = STOOD.read_text(encoding="utf-8").splitlines() if STOOD.exists() else []
    before, ended = passed_before(), cases(first)
    keep_passed(ended)
    note(session, stood=stood)
    at_first = {test: case for test, case in ended.items() if case.outcome == "failed"}
    if status != TESTS_FAILED or not at_first:
        return status
    if len(at_first) > AT_MOST:
        print(f"red: {len(at_first)} tests failed; at most {AT_MOST} have a second look", flush=True)
        return status
    print(f"a second look, alone, at {len(at_first)} that failed", flush=True)
    again = ["--last-failed", "--last-failed-no-failures", "none", f"--junitxml={second}"]
    status = subprocess.run([*pytest, *again, *arguments], check=False).returncode
    ended = cases(second)
    keep_passed(ended)
    flaky, drifted = [], []
    for test, case in at_first.items():
        if ended.get(test, Case("")).outcome == "passed":
            flaky.append(f"{test}: {case.first_line}")
        elif changed and case.inputs and before.get(test) == case.inputs:
            drifted.append("\n    ".join([test, *ended.get(test, case).error.splitlines()[:DIFFERENCE]]))
    note(session, stood=stood, flaky=flaky, drift=drifted)
    for kind, lines in (("flaky", flaky), ("drift", drifted)):
        for line in lines:
            print(f"{kind}: {line}", flush=True)
    if len(flaky) + len(drifted) < len(at_first):
        return status or TESTS_FAILED
    return status if status != TESTS_FAILED else 0


def summary(sessions: list[str]) -> int:
    """Print a line for each session, then what failed, drifted and was flaky; return 1 if any session was red."""
    noted, bad = notes(), []
    rows = [text.split(":") for text in sessions]
    red = [name for name, _, status in rows if status != "0"]
    print(f"\n{'session':<10}{'time':>8}{'passed':>8}{'stood':>8}{'failed':>8}{'drift':>8}{'flaky':>8}")
    for name, seconds, status in rows:
        ended = cases(REPORTS / f"{name}.xml")
        flaky, drift, stood = (noted.get(name, {}).get(kind, []) for kind in ("flaky", "drift", "stood"))
        drifted = {line.splitlines()[0] for line in drift}
        wrong = {test: case for test, case in ended.items() if case.outcome == "failed" and test not in drifted}
        failed = [line for test, case in wrong.items() if (line := f"{test}: {case.first_line}") not in flaky]
        bad += failed
        passed = sum(case.outcome == "passed" for case in ended.values())
        counts = [passed, len(stood), len(failed), len(drift), len(flaky)]
        clock = f"{int(seconds) // 60}:{int(seconds) % 60:02}"
        print(f"{name:<10}{clock:>8}" + "".join(f"{count:>8}" for count in counts) + ("" if status == "0" else "  red"))
    for line in bad:
        print(f"failed: {line}")
    for kind in ("drift", "flaky"):
        for line in (line for session in noted.values() for line in session.get(kind, [])):
            print(f"{kind}: {line}")
    print(f"red: {', '.join(red)}" if red else "green")
    return 1 if red else 0


def main() -> int:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run", help="run pytest, and what failed once more")
    one.add_argument("session")
    one.add_argument("--workers", type=int, default=0, help="processes of the first look; 0 is pytest's own")
    one.add_argument("--changed", action="store_true", help="leave out what passed with the same inputs, but a seventh")
    one.epilog = "What follows -- goes to pytest."
    one = commands.add_parser("flaky", help="note what passed at the second try")
    one.add_argument("session")
    one.add_argument("line")
    one = commands.add_parser("summary", help="sum up")
    one.add_argument("sessions", nargs="+", metavar="NAME:SECONDS:STATUS")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    given = parser.parse_args(sys.argv[1:at])
    if given.command == "run":
        return run(given.session, given.workers, given.changed, sys.argv[at + 1 :])
    if given.command == "flaky":
        lines = notes().get(given.session, {})
        note(given.session, **{**lines, "flaky": [*lines.get("flaky", []), given.line]})
        return 0
    return summary(given.sessions)


if __name__ == "__main__":
    sys.exit(main())
