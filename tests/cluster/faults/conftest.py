"""The fault tests: jobs that are disturbed at a rank, a step and a phase, and the table of what came of it.

The published scripts run unmodified, on one process for each node. `injection/sitecustomize.py` makes the faults
inside the ranks, `srunbook.cluster.faults` those of nodes, network and disk. `--record` writes
bench/results/faults.json.

They are the session `faults`; those marked `short_fault` also run in the session `slurm`. How long anything takes is on
record and decides nothing: it depends on what else the machine does.
"""

from __future__ import annotations

import json
import math
import re
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch
from measurements import Configuration, Measurement, read_measurement, write_measurement
from support.published import programs_of

import srunbook
from srunbook import cluster
from srunbook.cluster import FinishedJob, State
from srunbook.ranklog import RankEnd, parse_rank_lines
from srunbook.slurm import is_over, queue_states

ROOT = Path(__file__).resolve().parents[3]
RESULT = ROOT / "bench" / "results" / "faults.json"
SETTINGS = ("--epochs=1", "--batch-size=96")
LAST_STEP = 14
"""Steps that these settings make."""

SAVE_EVERY = 3
TESTS = "/opt/srunbook/tests"
INJECTION = f"{TESTS}/cluster/faults/injection"

AMPLE = 120
"""Minutes of a time limit that no job meets, however busy the machine is."""


def whole(path: Path) -> bool:
    """Return whether a checkpoint's checksums are right."""
    try:
        return zipfile.ZipFile(path).testzip() is None
    except zipfile.BadZipFile:
        return False


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
        self.asked, self.said = -math.inf, "RUNNING"

    def file(self, suffix: str) -> str:
        """Return what the job has written to its log of that suffix."""
        path = self.folder / f"slurm-{self.identity}.{suffix}"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def checkpoints(self) -> Path:
        """Its checkpoints, where it was not told another place."""
        return self.folder / "checkpoints" / self.identity

    def steps_saved(self) -> list[int]:
        """Return the steps of its checkpoints."""
        return sorted(int(path.stem[5:]) for path in self.checkpoints.glob("step_*.pt"))

    def restored(self) -> int:
        """Step of the newest whole checkpoint."""
        return max(step for step in self.steps_saved() if whole(self.checkpoints / f"step_{step:08}.pt"))

    def events(self, kind: str, **wanted: object) -> list[dict]:
        """Return what is on record."""
        path = self.folder / "events.jsonl"
        *whole, _ = path.read_text().split("\n") if path.exists() else [""]  # a rank may be writing the last line
        found = [json.loads(line) for line in whole]
        found = [event for event in found if event["job"] == self.identity and event["event"] == kind]
        return [event for event in found if wanted.items() <= event.items()]

    def await_fault(self, fault: str) -> float:
        """Wait for a fault; return when it happened."""
        events = self.until(lambda: self.events("fault", fault=fault) or self.has_ended())
        assert isinstance(events, list), f"the job ended before {fault}:\n{self.file('out')}{self.file('err')}"
        return events[0]["time"]

    def go(self, fault: str) -> float:
        """Let a rank go on that waits."""
        now = time.time()
        (self.folder / f"fault-{fault.replace(':', '-')}.go").touch()
        return now

    def state_now(self) -> str:
        """Return its state in squeue, asked three times a second at most: each time costs a process."""
        if time.monotonic() > self.asked + 0.3:
            found = queue_states(self.identity, lambda command: cluster.capture(self.state, command))
            self.said = (found or {}).get(self.identity, "RUNNING")
            self.asked = time.monotonic()
        return self.said

    def restarts(self) -> str:
        """Return how often it was requeued."""
        command = ["squeue", "--noheader", "--states=all", f"--jobs={self.identity}", "--Format=RestartCnt"]
        return cluster.capture(self.state, command).stdout.strip()

    def starts(self) -> int:
        """How often the script has begun since the last save."""
        path = self.folder / "logs" / f"slurm-{self.identity}.starts"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def started(self) -> float:
        """Return the time, if it runs."""
        return time.time() if self.state_now() == "RUNNING" else 0

    def has_ended(self) -> bool:
        """Tell whether it is neither waiting nor running."""
        return is_over(self.state_now())

    def is_back(self) -> bool:
        """Tell whether it was requeued and its processes are gone; it may have run to its end since."""
        return self.restarts() not in ("", "0") and self.state_now() != "COMPLETING"

    def await_end(self) -> FinishedJob:
        """Wait for its end."""
        return cluster.await_job(self.state, self.identity)

    def await_over(self) -> float:
        """Wait for its end; return when that was, without what accounting needs."""
        self.until(self.has_ended)
        return time.time()

    def signal(self, name: str) -> None:
        """Send a signal to its steps, as Slurm does before the time limit."""
        result = cluster.capture(self.state, ["scancel", f"--signal={name}", self.identity])
        assert result.returncode == 0, result.stderr

    def limit(self, seconds: int) -> None:
        """Let its time limit be so many seconds away."""
        self._update(f"EndTime=now+{seconds}")

    def lift_limit(self) -> None:
        """Give a requeued job, which keeps its time limit, time to end on a slow machine."""
        self._update(f"TimeLimit={AMPLE}")

    def _update(self, setting: str) -> None:
        result = cluster.capture(self.state, ["scontrol", "update", f"JobId={self.identity}", setting], user=None)
        assert result.returncode == 0, result.stderr

    def resumed(self) -> list[int]:
        """Return the steps after which it went on."""
        return [int(step) for step in re.findall(r"Resuming after step (\d+)", self.file("out"))]

    def parameters(self) -> str:
        """Hash of the final parameters, the same on all ranks."""
        ends = [record for record in parse_rank_lines(self.file("out").splitlines()) if isinstance(record, RankEnd)]
        hashes = {record.params for record in ends}
        assert len(hashes) == 1, f"{hashes}\n{self.file('out')}{self.file('err')}"
        return str(hashes.pop())

    def loss(self) -> float:
        """Loss of the epoch."""
        return float(re.findall(r"Avg Loss: ([\d.]+)", self.file("out"))[-1])

    def raised(self) -> dict[int, dict]:
        """Return the exceptions that ended ranks."""
        return {event["rank"]: event for event in self.events("raised")}

    def account(self) -> str:
        """States of all its attempts, from accounting."""
        command = ["sacct", "--duplicates", "--noheader", "-X", f"--jobs={self.identity}", "--format=State%20"]
        return cluster.capture(self.state, command).stdout


Submit = Callable[..., Trial]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark all tests of this folder."""
    item.add_marker("fault")


@pytest.fixture(scope="session")
def sbatch(slurm, until) -> Submit:
    """Submit a job in a folder of the cluster, with options of sbatch, the script, and what the script is given."""

    def start(folder: str, *words: str, environ: Sequence[str] = ()) -> Trial:
        result = cluster.capture(slurm, ["env", *environ, "sbatch", "--parsable", *words], folder=folder)
        assert result.returncode == 0, result.stderr
        return Trial(slurm, until, result.stdout.strip(), folder)

    return start


@pytest.fixture(scope="session")
def submit(slurm, sbatch) -> Submit:
    """Submit a script of the guide with faults in it, one process on each node.

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
        folder = folder or cluster.stage(slurm, path, extra=programs_of(guide / path.name))
        number = nodes if isinstance(nodes, int) else len(nodes)
        asked = [f"--nodes={number}", "--gpus-per-node=1", "--cpus-per-task=1", f"--time={AMPLE}", *options]
        if not isinstance(nodes, int):
            asked.append(f"--nodelist={','.join(nodes)}")
        environ = [f"SRUNBOOK_FAULTS={faults}", f"PYTHONPATH={INJECTION}:{TESTS}"]
        environ += ["SRUNBOOK_BATCHES=1"] if batches else []
        save = [f"--save-every={SAVE_EVERY}"] if path.stem == "run_requeue" else []
        return sbatch(folder, *asked, path.name, *SETTINGS, *save, *arguments, environ=environ)

    return start


@pytest.fixture
def changed(tmp_path):
    """Write a copy of a script without the lines that match, for negative controls."""

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
    """Return an undisturbed run on so many nodes."""
    known: dict[int, Trial] = {}

    def run(nodes: int) -> Trial:
        if nodes not in known:
            known[nodes] = submit(nodes=nodes, batches=True)
            assert known[nodes].await_end().state == "COMPLETED"
        return known[nodes]

    return run


@pytest.fixture(scope="session")
def interrupted(submit) -> tuple[Trial, float, float]:
    """Kill rank 1 of a job in a backward pass; return the job, when that was, and when the job was over."""
    fault = "kill:1:11:backward"
    trial = submit(fault, batches=True)
    at = trial.await_fault(fault)
    over = trial.await_over()
    assert trial.await_end().state == "FAILED"
    return trial, at, over


@pytest.fixture(scope="session")
def await_restarts(until) -> Callable[..., list[float]]:
    """Watch several jobs at once until each has been requeued, or has ended; return when that was, in their order.

    Those of `lift` then have their time limit lifted, which held for the first attempt.
    """

    def watch(*trials: Trial, lift: Sequence[Trial] = ()) -> list[float]:
        back: dict[str, float] = {}

        def all_back() -> bool:
            for trial in trials:
                if trial.identity not in back and (trial.is_back() or trial.has_ended()):
                    back[trial.identity] = time.time()
                    if trial in lift:
                        trial.lift_limit()
            return len(back) == len(trials)

        until(all_back)
        return [back[trial.identity] for trial in trials]

    return watch


@pytest.fixture(scope="session")
def outcomes(pytestconfig, slurm) -> Iterator[Callable[..., None]]:
    """Take what came of a fault; with `--record` it is written at the end, in place of earlier rows."""
    rows: list[Configuration] = []

    def add(fault: str, accepted: str, *, control: str = "none", **samples: float) -> None:
        print(f"{fault}: {samples}")
        parameters = {"fault": fault, "accepted": accepted, "negative_control": control}
        taken = {name: [float(f"{x:.3g}")] for name, x in samples.items()}
        rows.append(Configuration(fault, parameters, taken))

    yield add
    if not pytestconfig.getoption("--record") or not rows:
        return
    earlier = read_measurement(RESULT).configurations if RESULT.exists() else []
    whole = {item.name: item for item in (*earlier, *rows)}  # a run without --full leaves the longer forms as they are
    measurement = Measurement.taken_now(
        "nox -s faults -- --full --record",
        list(whole.values()),
        versions={"srunbook": srunbook.__version__, "slurm": slurm.root["slurm"], "torch": torch.__version__},
        parameters={"steps": LAST_STEP, "save_every": SAVE_EVERY, "processes_per_node": 1},
        machine={"proctrack": slurm.plugins["proctrack"]},
    )
    write_measurement(RESULT, measurement)
