"""Seed faults into copies of the tree, one at a time, and record which tests catch them.

    python tests/mutants/run.py                              # every fault of faults.toml; bench/results/mutants.json
    python tests/mutants/run.py --only mean-for-median --result one.json

A fault is caught when a test fails in the tree that has it and passes in the tree that does not. For each fault run the
tests that it names, or else the test files that name its file or import its room, unit tests first; the first failure
ends it. (Coverage would choose them line by line, but on Python 3.11 a RecursionError that a test catches under
coverage's tracer breaks all later tests of the process.)

Exit status: 0 every fault has its answer, 2 bad input. A fault that survives is a result, and no error.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from trees import Fault, MutantError, Tree, read_faults

from srunbook.measurements import Configuration, Measurement, read_measurement, write_measurement

ROOT = Path(__file__).resolve().parents[2]
FAULTS = Path(__file__).with_name("faults.toml")
RESULT = ROOT / "bench" / "results" / "mutants.json"
PLACES = ("src", "docs/_ext", "tests/unit", "tests/simulation", "tests/site")
"""What the tier `tests` runs."""
TIMEOUT = 300
"""Seconds after which a test counts as hanging."""


def tests_of(fault: Fault, root: Path) -> list[str]:
    """Choose the tests of a fault: those that it names, or else those that name its file or import its room."""
    return list(fault.by) or naming(fault.file, root)


def naming(file: str, root: Path) -> list[str]:
    """Find the test files of the tier `tests` that name a program, or import a room; unit tests first."""
    path = Path(file)
    if file.startswith("src/"):
        name, module = path.parent.name, re.escape(".".join(path.parent.parts[1:]))
        pattern = rf"\b{module}\b|^from srunbook\S* import .*\b{name}\b"
    else:
        name = path.parent.name
        pattern = rf"{re.escape(path.name)}|^(?:from|import) {re.escape(path.stem)}\b"
    tests = [test for place in PLACES for test in sorted((root / place).rglob("test_*.py"))]
    found = [test for test in tests if re.search(pattern, test.read_text(encoding="utf-8"), re.MULTILINE)]
    own = [file] if path.suffix == ".py" and ">>> " in (root / path).read_text(encoding="utf-8") else []
    order = sorted(found, key=lambda test: (test.parent.name != "unit", name not in test.name, test.stat().st_size))
    return [*own, *(test.relative_to(root).as_posix() for test in order)]


@dataclass
class Outcome:
    """What came of a fault.

    Args:
        caught_by: The test that failed, or None.
        seconds: Time until it had failed, or until all had passed.
        limited: Whether time was up before all had run.
        calls: How many calls of pytest it took.
        broken: Tests that fail without the fault, too, and count for nothing.
        reason: Why the test failed, in one line.
    """

    caught_by: str | None = None
    seconds: float = 0.0
    limited: bool = False
    calls: int = 0
    broken: list[str] = field(default_factory=list)
    reason: str = ""


class Runner:
    """Runs faults, each in a copy of its own.

    Args:
        root: The tree.
        seconds: Time for each fault.
        cluster: What the names of clusters begin with.
        folder: An empty folder.
        nodes: Whether a fault is one of the tier `slurm`.
    """

    def __init__(self, root: Path, seconds: float, cluster: str, folder: Path, *, nodes: bool) -> None:
        self.root = root
        self.seconds = seconds
        self.cluster = cluster
        self.folder = folder
        self.sound = Tree(root, folder / "sound", nodes=nodes)
        if self.sound.pytest("--version", seconds=None) != pytest.ExitCode.OK:
            raise MutantError(f"pytest does not start in a copy of {root}:\n{self.sound.tail()}")
        self.passes: dict[tuple[str, ...], bool] = {}

    def run(self, fault: Fault) -> Outcome:
        """Run the tests of a fault until one fails."""
        outcome = Outcome()
        with tempfile.TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True) as name:
            tree = Tree(self.root, Path(name) / "mutant", nodes=fault.tier == "slurm")
            fault.put_into(tree.path)
            for target in tests_of(fault, self.root):
                if outcome.caught_by or outcome.limited:
                    break
                self.make(target, fault, tree, outcome)
        return outcome

    def make(self, target: str, fault: Fault, tree: Tree, outcome: Outcome) -> None:
        """Run pytest on a file or test, and again without a test that turns out to be broken."""
        files = {target.partition("::")[0]}
        broken = [test for tests, passed in self.passes.items() if not passed for test in tests if "::" in test]
        of_these = [test for test in broken if test.partition("::")[0] in files and test not in outcome.broken]
        outcome.broken += of_these
        options = ["-x", *self.options(fault), *(f"--deselect={test}" for test in broken)]
        targets = (target,)
        while True:
            start = time.monotonic()
            outcome.calls += 1
            status = tree.pytest(*options, *targets, seconds=max(1.0, self.seconds - outcome.seconds))
            if status == pytest.ExitCode.USAGE_ERROR and not tree.failed():  # a test has another name by now
                targets = tuple(dict.fromkeys(target.partition("::")[0] for target in targets))
                status = tree.pytest(*options, *targets, seconds=max(1.0, self.seconds - outcome.seconds))
            outcome.seconds += time.monotonic() - start
            if status is None:
                outcome.limited = True
                return
            if status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                return
            failed = tuple(tree.failed()) or targets
            if self.sound_passes(failed, fault, target):
                outcome.reason = tree.reason()
                outcome.caught_by = " ".join(failed) if len(failed) < 4 else targets[0].partition("::")[0]
                return
            known = set(outcome.broken)
            outcome.broken += [test for test in failed if test not in known]
            if known.issuperset(failed) or not any("::" in test for test in failed):
                return
            options += [f"--deselect={test}" for test in failed]

    def options(self, fault: Fault) -> list[str]:
        """Choose options of pytest for a fault."""
        if fault.tier == "slurm":  # they start a cluster, and have times of their own
            return ["--cluster", self.cluster]
        return [f"--timeout={TIMEOUT}"]

    def sound_passes(self, tests: tuple[str, ...], fault: Fault, target: str) -> bool:
        """Tell whether tests pass in the tree without the fault; each is asked once."""
        if tests not in self.passes:
            whole = [] if any("::" in test for test in tests) else ["--collect-only"]
            if tests == (target,):
                whole = []  # pytest itself ended with an error: run all of it
            status = self.sound.pytest(*whole, *self.options(fault), *tests, seconds=3 * self.seconds)
            self.passes[tests] = status == pytest.ExitCode.OK
        return self.passes[tests]


def configuration(fault: Fault, outcome: Outcome) -> Configuration:
    """Write an outcome as raw samples."""
    parameters: dict[str, Any] = {
        "rows": "fault",
        "room": fault.room,
        "file": fault.file,
        "tier": fault.tier,
        "caught_by": outcome.caught_by,
        "reason": outcome.reason,
        "limited": outcome.limited,
        "broken": outcome.broken,
        "key": fault.key,
    }
    samples = {"caught": [1.0 if outcome.caught_by else 0.0], "seconds": [round(outcome.seconds, 1)]}
    return Configuration(fault.name, parameters, samples)


def sums(found: Sequence[Configuration]) -> list[Configuration]:
    """Count the faults of each room, and those that were caught: what a page shows."""
    rooms: dict[str, list[Configuration]] = {}
    for one in found:
        rooms.setdefault(one.parameters["room"], []).append(one)
    rooms = {**dict(sorted(rooms.items())), "all": list(found)}
    return [
        Configuration(
            f"room {room}",
            {"rows": "room", "room": room},
            {"faults": [float(len(ones))], "caught": [sum(one.samples["caught"][0] for one in ones)]},
        )
        for room, ones in rooms.items()
    ]


def earlier(options: argparse.Namespace, faults: Sequence[Fault]) -> dict[str, Configuration]:
    """Read what a result has already, of faults that are still the same."""
    if not (options.add and options.result.exists()):
        return {}
    keys = {fault.name: fault.key for fault in faults}
    known = read_measurement(options.result).configurations
    return {item.name: item for item in known if item.name in keys and keys[item.name] == item.parameters.get("key")}


def run_faults(options: argparse.Namespace) -> None:
    """Run faults and write the result after each."""
    root = options.root
    everything = read_faults(options.faults)
    faults = read_faults(options.faults, options.only)
    for fault in faults:
        fault.lines(root)  # before hours are spent on others
    found = earlier(options, everything)
    deadline = time.monotonic() + 3600 * options.limit_hours
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as name:
        left = [fault for fault in faults if fault.name not in found]
        nodes = any(fault.tier == "slurm" for fault in left)
        runner = Runner(root, 60 * options.minutes, options.cluster, Path(name), nodes=nodes)
        for fault in left:
            if time.monotonic() > deadline:
                print(f"{options.limit_hours:g} h are over: go on with --add", file=sys.stderr)
                break
            outcome = runner.run(fault)
            found[fault.name] = configuration(fault, outcome)
            said = f"caught by {outcome.caught_by}" if outcome.caught_by else "SURVIVED"
            said += " (time was up)" * outcome.limited
            said += f" (broken: {', '.join(outcome.broken)})" * bool(outcome.broken)
            print(f"{fault.name:40} {outcome.seconds:6.1f} s  {said}", flush=True)
            write(options, [found[item.name] for item in everything if item.name in found])
    caught = [item for item in found.values() if item.samples["caught"] == [1.0]]
    print(f"{len(caught)} of {len(found)} faults were caught; {len(everything) - len(found)} were not tried")


def write(options: argparse.Namespace, configurations: list[Configuration]) -> None:
    """Write the measurement, with the stamp of the tree that was tested."""
    result = options.result.resolve()
    with contextlib.chdir(options.root):
        measurement = Measurement.taken_now(
            "nox -s mutants",
            [*configurations, *sums(configurations)],
            versions={"pytest": pytest.__version__},
            parameters={"minutes": options.minutes},
        )
    write_measurement(result, measurement)


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    top = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = top.add_argument
    add("--only", action="append", default=[], metavar="NAME", help="a fault; may be given again")
    add("--faults", type=Path, default=FAULTS, help="(default: %(default)s)")
    add("--result", type=lambda text: Path(text).resolve(), default=RESULT, help="(default: %(default)s)")
    add("--add", action="store_true", help="keep what the result has, and run the rest")
    add("--limit-hours", type=float, default=4.0, help="begin no fault after this time (default: %(default)s)")
    add("--minutes", type=float, default=12.0, help="time for each fault (default: %(default)s)")
    add("--cluster", default="mutants", help="what the names of clusters begin with (default: %(default)s)")
    add("--root", type=Path, default=ROOT, help="the tree (default: %(default)s)")
    return top


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """End with status 2 and one line where what was given is wrong."""
    try:
        yield
    except (MutantError, OSError, ValueError) as error:
        print(f"mutants: {error}", file=sys.stderr)
        sys.exit(2)


def main() -> None:
    """Run the faults."""
    options = parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what runs is ended on the way out
    options.root = options.root.resolve()
    with one_line():
        run_faults(options)


if __name__ == "__main__":
    main()
