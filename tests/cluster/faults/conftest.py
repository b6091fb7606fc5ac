"""The fault tests: jobs that are disturbed at a rank, a step and a phase, and the table of what came of it.

The published scripts run unmodified, on one process for each node. `injection/sitecustomize.py` makes the faults
inside the ranks, `srunbook.cluster.faults` those of nodes, network and disk. `--record` writes
bench/results/faults.json.

They are the session `faults`; those marked `short_fault` also run in the session `slurm`. How long anything takes is on
record and decides nothing: it depends on what else the machine does.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch
from support.trials import AMPLE, Outcome, Trial

import srunbook
from srunbook import cluster
from srunbook.cli._checkout import programs_of
from srunbook.measurements import Configuration, Measurement, read_measurement, write_measurement

ROOT = Path(__file__).resolve().parents[3]
RESULT = ROOT / "bench" / "results" / "faults.json"
SETTINGS = ("--epochs=1", "--batch-size=96")
LAST_STEP = 14
"""Steps that these settings make."""

SAVE_EVERY = 3
TESTS = "/opt/srunbook/tests"
INJECTION = f"{TESTS}/cluster/faults/injection"


Submit = Callable[..., Trial]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark all tests of this folder."""
    item.add_marker("fault")


@pytest.fixture(scope="session")
def submit(slurm, until) -> Submit:
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
        command = ["env", *environ, "sbatch", "--parsable", *asked, path.name, *SETTINGS, *save, *arguments]
        result = cluster.capture(slurm, command, folder=folder)
        assert result.returncode == 0, result.stderr
        return Trial(slurm, until, result.stdout.strip(), folder)

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
        "nox -s faults -- --full --record",
        sorted(whole.values(), key=lambda item: item.parameters["row"]),
        versions={"srunbook": srunbook.__version__, "slurm": slurm.root["slurm"], "torch": torch.__version__},
        parameters={"steps": LAST_STEP, "save_every": SAVE_EVERY, "processes_per_node": 1},
        machine={"proctrack": slurm.plugins["proctrack"]},
    )
    write_measurement(RESULT, measurement)
