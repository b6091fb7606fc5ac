"""The chapter *The bad node*: three nodes of the simulation, one of which is broken.

`pytest tests/simulation/test_preflight.py --record` writes what one machine prints.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import forked
from support.reader import Reader

from recordings.comparing import Mask

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "runs_that_last"
NODES = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]

PLACE = "import os, time; rank = int(os.environ['RANK']); os.environ['SLURMD_NODENAME'] = f'127.0.0.{rank + 1}'\n"
"""Comes before the program, and turns its rank into a node."""

SPEEDS = (Mask(r"[\d,]+ (MB|GFLOP)/s", r"<n> \1/s", "speeds differ from run to run"),)


@pytest.fixture(scope="module")
def run(quick_start: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[forked.Run]:
    """Run a program in a folder, with some of its text replaced."""
    with forked.running(EXAMPLES, tmp_path_factory) as start:
        yield start


Judge = Callable[..., tuple[list[str], list[str]]]


@pytest.fixture
def judge(run: forked.Run, tmp_path: Path) -> Judge:
    """Judge what nodes found; return the good ones, and what was said about them all."""

    def judged(found: str, nodes: list[str] = NODES) -> tuple[list[str], list[str]]:
        (tmp_path / "found").write_text(found, encoding="utf-8")
        done = run("preflight.py", 1, "judge", *nodes, folder=tmp_path, before="import sys; sys.stdin = open('found')")
        (rank,) = done.ranks
        good = [line.removesuffix(" ok") for line in rank["stdout"].splitlines() if line.endswith(" ok")]
        assert rank["status"] == (0 if good else 1), done.text
        return good, rank["stderr"].splitlines()

    return judged


@pytest.fixture
def checked(run: forked.Run, judge: Judge) -> Judge:
    """Check three nodes, after some code that may break one of them, and judge them."""

    def check(fault: str = "", **environ: str) -> tuple[list[str], list[str]]:
        before = PLACE + fault
        done = run("preflight.py", 1, "check", *NODES, nodes=3, before=before, SLURM_JOB_ID=str(os.getpid()), **environ)
        assert done.statuses == [0, 0, 0], done.text
        return judge("".join(rank["stdout"] for rank in done.ranks))

    return check


def test_one_machine_prints_what_the_page_shows(reader: Reader) -> None:
    """The command of the docstring checks the machine that it runs on."""
    program = EXAMPLES / "preflight.py"
    (command,) = reader.commands(program)
    printed = reader.run(program, command)
    reader.compare(program, printed, lambda line: " ok: " in line, [*SPEEDS, Mask(r"^\S+ ok", "<node> ok", "a name")])


def test_good_nodes_pass(checked: Judge) -> None:
    """Three nodes that share a machine are all good, however busy it is."""
    good, said = checked()

    assert good == NODES, said
    assert all("disk" in line and "compute" in line and "network" in line for line in said), said


def stand_in(folder: Path, name: str, text: str) -> str:
    """Write a command that says something, and return code that puts it before all others."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
    (folder / name).chmod(0o755)
    return f"os.environ['PATH'] = '{folder}:' + os.environ['PATH']\n"


HEALTHY = "0, No, [N/A], Not Active"

DCGM = "echo '| Deployment | Pass |'; echo '| NVML Library              | Fail                   |'"


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("nvidia-smi", f"echo '{HEALTHY}'", "nvidia-smi sees 1 of 2"),
        (
            "nvidia-smi",
            f"echo '{HEALTHY}'; echo '3, No, No, Not Active'",
            "GPU 1: ecc.errors.uncorrected.volatile.total is 3",
        ),
        (
            "nvidia-smi",
            "echo 'Unable to determine the device handle for GPU' >&2; exit 15",
            "Unable to determine the device",
        ),
        ("dcgmi", DCGM, "dcgmi diag: NVML Library failed"),
    ],
    ids=["lost", "ecc", "fails", "dcgm"],
)
def test_broken_gpu(checked: Judge, tmp_path: Path, name: str, text: str, reason: str) -> None:
    """A node is bad if its driver or DCGM says so, or sees fewer GPUs than Slurm gave to the job."""
    everywhere = stand_in(tmp_path / "all", "nvidia-smi", f"echo '{HEALTHY}'; echo '{HEALTHY}'")
    there = stand_in(tmp_path / "bad", name, text)
    good, said = checked(f"{everywhere}if rank == 1: {there}", SLURM_GPUS_ON_NODE="2")

    assert good == [NODES[0], NODES[2]], said
    assert reason in said[1]
    assert said[-1].startswith(f'scontrol update NodeName={NODES[1]} State=DRAIN Reason="job ')
    assert reason in said[-1]


FAST_CLOCK = "real = time.perf_counter; time.perf_counter = lambda: 100 * real()"


@pytest.mark.parametrize(
    ("fault", "reasons"),
    [
        ("os.environ['SLURM_TMPDIR'] = '/nowhere'", ["disk: [Errno 2]"]),
        (FAST_CLOCK, ["disk: ", "compute: ", " instead of "]),
        ("import torch; torch.Tensor.__matmul__ = lambda *_: os.abort()", ["compute: the check crashed"]),
        ("now = time.time; time.time = lambda: now() + 3600", [" s apart with 127.0.0.1"]),
    ],
    ids=["no disk", "slow", "crash", "clock"],
)
def test_broken_node(checked: Judge, fault: str, reasons: list[str]) -> None:
    """A node whose disk is missing, which is slow, crashes, or has another time, is bad; its neighbours are good."""
    good, said = checked(f"if rank == 1:\n    {fault}")

    assert good == [NODES[0], NODES[2]], said
    assert all(reason in said[1] for reason in reasons), said[1]


def findings(nodes: list[str], pairs: dict[tuple[str, str], float], silent: str = "") -> str:
    """Write what nodes find that are all well by themselves."""
    own = [{"node": node, "check": name} for node in nodes if node != silent for name in ("gpus", "disk", "compute")]
    met = [{"node": pair[0], "pair": pair, "speed": speed, "clock": 0.0} for pair, speed in pairs.items()]
    return "".join(f"{json.dumps(line)}\n" for line in [*own, *met])


def test_silent_node(judge: Judge) -> None:
    """A node that prints nothing is bad, and those that waited for it are good."""
    a, b, c = NODES
    good, said = judge(findings(NODES, {(a, c): 900.0}, silent=b))

    assert good == [a, c], said
    assert said[1] == f"{b} bad: no answer"


@pytest.mark.parametrize("slow", [["n1", "n4"], ["n2", "n3"], ["n3"]])
def test_slow_links(judge: Judge, slow: list[str]) -> None:
    """Nodes with slow links are found among six, though good nodes have slow pairs as well."""
    nodes = [f"n{number}" for number in range(1, 7)]
    module: dict[str, Any] = {}
    source = (EXAMPLES / "preflight.py").read_text(encoding="utf-8")
    exec("ROUNDS = 3\n" + source[source.index("def pairs(") : source.index("def check(")], module)
    rounds = [*module["pairs"](nodes)]
    pairs = {pair: 10.0 if {*pair} & {*slow} else 900.0 for meetings in rounds for pair in meetings}
    good, said = judge(findings(nodes, pairs), nodes)

    assert [sorted(node for pair in meetings for node in pair) for meetings in rounds] == [nodes] * 3
    assert len(pairs) == 9
    assert good == [node for node in nodes if node not in slow], said


def test_broken_link(judge: Judge) -> None:
    """If two nodes only don't reach each other, one of them is left out."""
    a, b, c = NODES
    good, said = judge(findings(NODES, {(a, b): 900.0, (a, c): 900.0}))

    assert good == [a, b], said
    assert "no answer with 127.0.0.2" in said[2]


WRONG_CHECK = findings(NODES, {(NODES[0], NODES[1]): 900.0, (NODES[0], NODES[2]): 900.0, (NODES[1], NODES[2]): 900.0})


@pytest.mark.parametrize(
    "found",
    [WRONG_CHECK.replace('"gpus"', '"gpus", "error": "unknown field"'), findings(NODES, {})],
    ids=["wrong check", "no network"],
)
def test_no_good_node(judge: Judge, found: str) -> None:
    """If no node passes, or no two of them reach each other, the program fails and calls no node good."""
    good, said = judge(found)

    assert good == []
    assert said[-1].startswith("error: no node passed")
