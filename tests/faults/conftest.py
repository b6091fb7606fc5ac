"""The fault tests: jobs that are disturbed at a rank, a step and a phase, and the table of what came of it.

The published scripts run unmodified, on one process for each node. `injection/sitecustomize.py` makes the faults
inside the ranks, `srunbook.cluster.faults` those of nodes, network and disk. `--record` writes
bench/results/faults.json.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import srunbook
from srunbook import cluster
from srunbook.checkpoint import Checkpoints
from srunbook.cluster import Job, State
from srunbook.formats import (
    Configuration,
    EndRecord,
    Measurement,
    parse_records,
    read_measurement,
    write_measurement,
)

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "bench" / "results" / "faults.json"
SETTINGS = ("--epochs=1", "--batch-size=96")
LAST_STEP = 14
"""Steps that these settings make."""

SAVE_EVERY = 3
START = 300
"""Seconds in which a job reaches any step, also on a slow machine that does other things meanwhile."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives these tests time for several jobs and for a dead node."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600))


class Trial:
    """A job, and what the faults in it have put on record.

    Args:
        state: The cluster.
        until: Polls.
        identity: Number of the job.
        folder: Where it was submitted, as the cluster sees it.
    """

    def __init__(self, state: State, until: Callable[..., object], identity: str, folder: str) -> None:
        self.state, self.until, self.identity, self.inside = state, until, identity, folder
        self.folder = state.folder / folder.removeprefix("/")
        self.asked, self.said = -math.inf, {}

    def file(self, suffix: str) -> str:
        """What the job has written to its log of that suffix."""
        path = self.folder / f"slurm-{self.identity}.{suffix}"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def checkpoints(self) -> Path:
        """Its checkpoints, where it was not told another place."""
        return self.folder / "checkpoints" / self.identity

    def steps_saved(self) -> list[int]:
        """Steps of its checkpoints."""
        return sorted(int(path.name[5:]) for path in self.checkpoints.iterdir() if re.fullmatch(r"step-\d+", path.name))

    def restored(self) -> int:
        """Step of the newest whole checkpoint."""
        restored = Checkpoints(self.checkpoints).restore()
        assert restored is not None
        return restored.step

    def events(self, kind: str, **wanted: object) -> list[dict]:
        """What is on record."""
        path = self.folder / "events.jsonl"
        *whole, _ = path.read_text().split("\n") if path.exists() else [""]  # a rank may be writing the last line
        found = [json.loads(line) for line in whole]
        found = [event for event in found if event["job"] == self.identity and event["event"] == kind]
        return [event for event in found if wanted.items() <= event.items()]

    def await_fault(self, fault: str) -> float:
        """Waits for a fault; returns when it happened."""
        events = self.until(lambda: self.events("fault", fault=fault) or self.has_ended(), START)
        assert isinstance(events, list), f"the job ended before {fault}:\n{self.file('out')}{self.file('err')}"
        return events[0]["time"]

    def go(self, fault: str) -> float:
        """Lets a rank go on that waits."""
        now = time.time()
        (self.folder / f"fault-{fault.replace(':', '-')}.go").touch()
        return now

    def shown(self) -> dict[str, str]:
        """What `scontrol show job` says, asked three times a second at most: each time costs a process."""
        if time.monotonic() > self.asked + 0.3:
            result = cluster.capture(self.state, ["scontrol", "--oneliner", "show", "job", self.identity])
            self.said = dict(re.findall(r"(\w+)=(\S*)", result.stdout))
            self.asked = time.monotonic()
        return self.said

    def starts(self) -> int:
        """How often the script has begun since the last save."""
        path = self.folder / "logs" / f"slurm-{self.identity}.starts"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def started(self) -> float:
        """The time, if it runs."""
        return time.time() if self.shown().get("JobState") == "RUNNING" else 0

    def has_ended(self) -> bool:
        """Whether it is neither waiting nor running."""
        alive = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED")
        return self.shown().get("JobState", "RUNNING") not in alive

    def is_back(self) -> bool:
        """Whether it was requeued and its processes are gone; it may have run to its end since."""
        return self.shown().get("Restarts", "0") != "0" and self.shown()["JobState"] != "COMPLETING"

    def await_end(self, seconds: float) -> Job:
        """Waits for its end."""
        return cluster.await_job(self.state, self.identity, timeout=seconds)

    def await_over(self, seconds: float) -> float:
        """Waits for its end; returns when that was, without what accounting needs."""
        self.until(self.has_ended, seconds)
        return time.time()

    def signal(self, name: str) -> None:
        """Sends a signal to its steps, as Slurm does before the time limit."""
        result = cluster.capture(self.state, ["scancel", f"--signal={name}", self.identity])
        assert result.returncode == 0, result.stderr

    def limit(self, seconds: int) -> None:
        """Sets the time limit to a full minute that is at least so many seconds away."""
        self.asked = -math.inf
        hours, minutes, past = map(int, self.shown()["RunTime"].split(":"))
        self._set_limit(math.ceil((3600 * hours + 60 * minutes + past + seconds) / 60))

    def lift_limit(self) -> None:
        """Gives a requeued job, which keeps its time limit, time to end on a slow machine."""
        self._set_limit(10)

    def _set_limit(self, minutes: int) -> None:
        command = ["scontrol", "update", f"JobId={self.identity}", f"TimeLimit={minutes}"]
        result = cluster.capture(self.state, command)
        assert result.returncode == 0, result.stderr

    def resumed(self) -> list[int]:
        """Steps after which it went on."""
        return [int(step) for step in re.findall(r"Resuming after step (\d+)", self.file("out"))]

    def parameters(self) -> str:
        """Hash of the final parameters, the same on all ranks."""
        ends = [record for record in parse_records(self.file("out").splitlines()) if isinstance(record, EndRecord)]
        hashes = {record.params_sha256 for record in ends}
        assert len(hashes) == 1, f"{hashes}\n{self.file('out')}{self.file('err')}"
        return str(hashes.pop())

    def loss(self) -> float:
        """Loss of the epoch."""
        return float(re.findall(r"Avg Loss: ([\d.]+)", self.file("out"))[-1])

    def raised(self) -> dict[int, dict]:
        """The exceptions that ended ranks."""
        return {event["rank"]: event for event in self.events("raised")}

    def account(self) -> str:
        """States of all its attempts, from accounting."""
        command = ["sacct", "--duplicates", "--noheader", "-X", f"--jobs={self.identity}", "--format=State%20"]
        return cluster.capture(self.state, command).stdout


Submit = Callable[..., Trial]


@pytest.fixture(scope="session")
def submit(slurm, until) -> Submit:
    """Submits a script of the guide with faults in it, one process on each node.

    The function takes the faults, the script (a name, or the path of a changed copy), the nodes (names or a number),
    arguments of the program, options of sbatch, and the folder of an earlier trial to run in the same place.
    """

    def start(
        faults: str = "",
        script: str | Path = "run_requeue",
        nodes: Sequence[str] | int = ("node1", "node2"),
        arguments: Sequence[str] = (),
        options: Sequence[str] = (),
        folder: str | None = None,
        batches: bool = False,
    ) -> Trial:
        guide = ROOT / "slurm" / "torchrun"
        path = guide / f"{script}.sbatch" if isinstance(script, str) else script
        programs = [] if isinstance(script, str) else cluster_companions(guide / path.name)
        folder = folder or cluster.stage(slurm, path, extra=programs)
        number = nodes if isinstance(nodes, int) else len(nodes)
        asked = [f"--nodes={number}", "--gpus-per-node=1", "--cpus-per-task=1", *options]
        if not isinstance(nodes, int):
            asked.append(f"--nodelist={','.join(nodes)}")
        environ = [f"SRUNBOOK_FAULTS={faults}", "PYTHONPATH=/opt/srunbook/tests/faults/injection"]
        environ += ["SRUNBOOK_BATCHES=1"] if batches else []
        save = [f"--save-every={SAVE_EVERY}"] if path.stem == "run_requeue" else []
        command = ["env", *environ, "sbatch", "--parsable", *asked, path.name, *SETTINGS, *save, *arguments]
        result = cluster.capture(slurm, command, folder=folder)
        assert result.returncode == 0, result.stderr
        return Trial(slurm, until, result.stdout.strip(), folder)

    return start


def cluster_companions(script: Path) -> list[Path]:
    """The programs that a changed copy of a script needs beside it."""
    folder = ROOT / "examples" / script.parent.name
    return [path for path in sorted(folder.glob("*.py")) if not path.name.startswith("plot_")]


@pytest.fixture
def changed(tmp_path):
    """Writes a copy of a script without the lines that match, for negative controls."""

    def write(name: str, pattern: str) -> Path:
        text = (ROOT / "slurm" / "torchrun" / f"{name}.sbatch").read_text(encoding="utf-8")
        without = re.sub(rf"^.*{pattern}.*\n", "", text, flags=re.MULTILINE)
        assert without != text
        path = tmp_path / f"{name}.sbatch"
        path.write_text(without, encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="session")
def undisturbed(submit) -> Callable[[int], Trial]:
    """An undisturbed run on so many nodes."""
    known: dict[int, Trial] = {}

    def run(nodes: int) -> Trial:
        if nodes not in known:
            known[nodes] = submit(nodes=nodes, batches=True)
            assert known[nodes].await_end(START).state == "COMPLETED"
        return known[nodes]

    return run


@pytest.fixture(scope="session")
def interrupted(submit) -> tuple[Trial, float, float]:
    """A job whose rank 1 is killed in the middle of a backward pass; when that was, and when the job was over."""
    fault = "kill:1:11:backward"
    trial = submit(fault, batches=True)
    at = trial.await_fault(fault)
    over = trial.await_over(30)
    assert trial.await_end(30).state == "FAILED"
    return trial, at, over


@pytest.fixture(scope="session")
def await_restarts(until) -> Callable[..., list[float]]:
    """Watches several jobs at once until each has been requeued; returns when that was, in their order.

    Those of `lift` then have their time limit lifted, which held for the first attempt.
    """

    def watch(*trials: Trial, seconds: float, lift: Sequence[Trial] = ()) -> list[float]:
        back: dict[str, float] = {}

        def all_back() -> bool:
            for trial in trials:
                if trial.identity not in back and trial.is_back():
                    back[trial.identity] = time.time()
                    if trial in lift:
                        trial.lift_limit()
            return len(back) == len(trials)

        until(all_back, seconds)
        return [back[trial.identity] for trial in trials]

    return watch


@dataclass(frozen=True)
class Outcome:
    """A row of the table."""

    row: float
    fault: str
    accepted: str
    control: str
    samples: dict[str, list[float]]


@pytest.fixture(scope="session")
def outcomes(pytestconfig, slurm) -> Iterator[Callable[..., None]]:
    """Takes what came of a fault; with `--record` it is written at the end, in the place of earlier rows."""
    rows: list[Outcome] = []

    def add(row: float, fault: str, accepted: str, *, control: str = "none", **samples: float) -> None:
        print(f"row {row}: {fault}: {samples}")
        rows.append(Outcome(row, fault, accepted, control, {name: [float(f"{x:.3g}")] for name, x in samples.items()}))

    yield add
    if not pytestconfig.getoption("--record") or not rows:
        return
    found = {
        item.fault: Configuration(
            item.fault,
            {"row": int(item.row), "fault": item.fault, "accepted": item.accepted, "negative_control": item.control},
            item.samples,
        )
        for item in sorted(rows, key=lambda item: item.row)
    }
    earlier = read_measurement(RESULT).configurations if RESULT.exists() else []
    whole = {item.name: item for item in earlier} | found  # a run without --full leaves the longer forms as they are
    measurement = Measurement.taken_now(
        "nox -s slurm -- tests/faults --full --record",
        sorted(whole.values(), key=lambda item: item.parameters["row"]),
        versions={"srunbook": srunbook.__version__, "slurm": slurm.root["slurm"], "torch": torch.__version__},
        parameters={"steps": LAST_STEP, "save_every": SAVE_EVERY, "processes_per_node": 1},
        machine={"proctrack": slurm.plugins["proctrack"]},
    )
    write_measurement(RESULT, measurement)
