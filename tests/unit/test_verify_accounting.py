"""`srunbook verify` judges each element of an array and each component, and no row of another job counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.left_behind import Left, end, expect, start
from support.pretend_sacct import install_sacct

from srunbook import verify
from srunbook.verify import Cause, Outcome

RAW = "JobID|JobIDRaw|State|ExitCode|NNodes|NTasks|Elapsed|NodeList"
SRUNBOOK = [sys.executable, "-c", "from srunbook.cli import main; main(prog_name='srunbook')", "verify"]


def rows(
    identity: str, raw: str, *, state: str = "COMPLETED", code: str = "0:0", tasks: int = 2, nodes: str = "1-2"
) -> str:
    """Return the rows of a job, element or component and of its step 0, as sacct prints them."""
    count = tasks if "-" in nodes or "," in nodes else 1
    place = f"node[{nodes}]" if count > 1 else f"node{nodes}"
    return (
        f"{identity}|{raw}|{state}|{code}|{count}||00:01:30|{place}\n"
        f"{identity}.0|{raw}.0|{state}|{code}|{count}|{tasks}|00:01:28|{place}\n"
    )


@pytest.fixture
def left(tmp_path: Path) -> Left:
    """Make a folder with three elements of the array 56, each with its log; the last one has the array's number."""
    left = Left(tmp_path, header=RAW)
    left.accounting = rows("56_1", "57") + rows("56_2", "58") + rows("56_3", "56")
    for element, raw in ((1, 57), (2, 58), (3, 56)):
        write(tmp_path / f"slurm-56_{element}.out", raw)
    return left


def write(path: Path, job: int | str, world: int = 2) -> None:
    """Write the log of a job whose ranks did what they should."""
    lines = [start(rank, world, job=job) for rank in range(world)] + [end(rank, world) for rank in range(world)]
    path.write_text("\n".join([*lines, ""]))


# Arrays


def test_every_element_of_an_array_is_judged(left):
    """An array is good when each of its elements is; each has its line."""
    report = left.judge("56")

    assert report.cause is Cause.VERIFIED, report.text()
    assert [check.name for check in report.checks] == ["56_1", "56_2", "56_3"]
    assert [part.cause for part in report.parts] == [Cause.VERIFIED] * 3
    assert report.text().startswith("Job 56\n\npassed      56_1  8 passed")


@pytest.mark.parametrize("element", [1, 2, 3])
def test_one_element_failed(left, element):
    """An element that failed decides about the array, whichever it is."""
    left.accounting = "".join(
        rows(f"56_{number}", raw, **({"state": "FAILED", "code": "1:0"} if number == element else {}))
        for number, raw in ((1, "57"), (2, "58"), (3, "56"))
    )
    report = left.judge("56")

    expect(report, Cause.FAILED, "job: FAILED 1:0")
    (failed,) = [check.name for check in report.checks if check.outcome is Outcome.FAILED]
    assert failed == f"56_{element}"
    assert json.loads(report.json())["parts"][element - 1]["cause"] == "FAILED"


def test_a_failure_weighs_more_than_an_element_that_runs(left):
    """While one element waits and another has failed, the array has failed; without the latter it runs."""
    waiting = "56_[4-9%2]|56|PENDING|0:0|2||00:00:00|None assigned\n"
    left.accounting = waiting + rows("56_1", "57") + rows("56_2", "58", state="TIMEOUT")
    assert left.judge("56").cause is Cause.TIMEOUT
    left.accounting = waiting + rows("56_1", "57")
    report = left.judge("56")

    assert (report.cause, report.ended) == (Cause.PENDING, False)
    assert "56_[4-9%2]" in report.text()


def test_one_element_by_its_number(left):
    """`56_2`, and the number that Slurm gave this element, are judged alone."""
    left.accounting = rows("56_2", "58")
    by_element, by_raw = left.judge("56_2"), left.judge("58")

    assert by_element.cause is by_raw.cause is Cause.VERIFIED, by_element.text() + by_raw.text()
    assert len(by_element.checks) == 8
    left.accounting = rows("56_2", "58", state="FAILED", code="1:0")
    assert left.judge("56_2").cause is Cause.FAILED


def test_attempts_of_an_element(left):
    """An element that was requeued has attempts; another element is none of them."""
    left.accounting = rows("56_2", "58", state="NODE_FAIL") + rows("56_1", "57") + rows("56_2", "58")
    report = left.judge("56")

    assert report.cause is Cause.VERIFIED, report.text()
    evidence = {part.job: part.checks[0].evidence for part in report.parts}
    assert "attempt" not in evidence["56_1"]
    assert evidence["56_2"].endswith("attempt 2, the earlier ended NODE_FAIL")


@pytest.mark.parametrize("name", ["ddp_cpu_57", "mine_56_1"])
def test_the_folder_of_an_element(left, name):
    """A folder named by an element, or by the number that Slurm gave it, is its folder of results."""
    folder = left.folder / "results" / name
    folder.mkdir(parents=True)
    (folder / "metrics.csv").write_text("epoch,loss\n1,0.5\n")
    whole = left.judge("56", form=verify.ResultsForm())
    alone = left.judge(f"results/{name}", form=verify.ResultsForm())

    assert whole.parts[0].results == alone.results == str(folder)
    assert "56_1" in alone.checks[0].evidence or alone.checks[0].outcome is Outcome.PASSED


def test_lines_of_another_element(left):
    """An element with the log of another one is not verified."""
    write(left.folder / "slurm-56_1.out", 58)

    expect(left.judge("56").parts[0], Cause.RANK_LINE_DAMAGED, "is of job 58; expected job 56_1")


# Heterogeneous jobs

HET = rows("56+0", "56", tasks=2) + rows("56+1", "57", tasks=1, nodes="3")


@pytest.fixture
def het(tmp_path: Path) -> Left:
    """Make a folder with the log of a job of two components, which ran one step of three tasks."""
    write(tmp_path / "slurm-56.out", 56, world=3)
    return Left(tmp_path, header=RAW, accounting=HET)


@pytest.mark.parametrize("target", ["56", "56+1", "57"])
def test_a_heterogeneous_job(het, target):
    """Each component has its verdict, and the world is that of the step that ran on both."""
    report = het.judge(target)

    assert report.cause is Cause.VERIFIED, report.text()
    names = [check.name for check in report.checks]
    assert "56+1 job" in names
    assert ("56+0 job" in names) is (target == "56")
    assert "world" in names


@pytest.mark.parametrize(("component", "raw", "tasks", "nodes"), [("56+0", "56", 2, "1-2"), ("56+1", "57", 1, "3")])
def test_a_component_failed(het, component, raw, tasks, nodes):
    """A component that failed decides about the job, whichever it is."""
    good = rows(component, raw, tasks=tasks, nodes=nodes)
    assert good in HET
    het.accounting = HET.replace(good, good.replace("COMPLETED|0:0", "OUT_OF_MEMORY|0:125"))

    expect(het.judge("56"), Cause.OUT_OF_MEMORY, "OUT_OF_MEMORY 0:125")
    expect(het.judge(component), Cause.OUT_OF_MEMORY, "OUT_OF_MEMORY 0:125")


def test_components_that_ran_steps_of_their_own(het):
    """Components whose steps have one number may have run two programs, each in a world of its own."""
    two = [start(0, job=56), start(1, job=56), end(0), end(1)]
    one = [start(0, 1, job=56, host="node3"), end(0, 1)]
    (het.folder / "slurm-56.out").write_text("\n".join([*two, *one, ""]))

    assert het.judge("56").cause is Cause.VERIFIED, het.judge("56").text()


def test_components_on_one_node(het):
    """Components may share a node, and a step that runs on both counts it once."""
    het.accounting = rows("56+0", "56", tasks=1, nodes="1") + rows("56+1", "57", tasks=1, nodes="1")
    lines = [start(rank, job=56, host="node1") for rank in (0, 1)] + [end(0), end(1)]
    (het.folder / "slurm-56.out").write_text("\n".join([*lines, ""]))

    assert het.judge("56").cause is Cause.VERIFIED, het.judge("56").text()


def test_a_rank_of_a_component_is_missing(het):
    """A world of the first component alone leaves the second one's task without a rank."""
    (het.folder / "slurm-56.out").write_text("\n".join([start(0, job=56), start(1, job=56), end(0), end(1)]))

    assert het.judge("56").cause is not Cause.VERIFIED


# Rows of other jobs


@pytest.mark.parametrize(
    ("target", "accounting"),
    [
        ("56_1", rows("56_1", "57") + rows("56_2", "58")),
        ("56", rows("56_1", "57") + rows("18", "18")),
        ("56", rows("18", "18")),
        ("57", rows("56_1", "57") + rows("56_2", "58")),
    ],
)
def test_rows_of_another_job(left, target, accounting):
    """A row of another job is an error, in whatever place."""
    left.accounting = accounting

    expect(left.judge(target), Cause.OTHER_JOB, "gave rows of job (18|56_2), which is not")


def test_a_step_without_its_job(left):
    """Rows of steps alone do not tell how the job ended."""
    with pytest.raises(ValueError, match=r"56_1\.0.*without a row of its job"):
        verify.collect(
            "56_1",
            folder=left.folder,
            ask=lambda job: Left(left.folder, header=RAW, accounting=rows("56_1", "57").split("\n", 1)[1]).ask(job),
        )


# The command

SETTLED = {"Partition": "cpu", "End": "2026-11-20T10:00:00"}
"""What accounting has at last: without it, the command waits ten seconds for more."""


def test_the_command_takes_elements_and_components(tmp_path, monkeypatch):
    """The command accepts `56_3` and `56+1`, and prints valid JSON for them."""
    known = [{"State": "COMPLETED", "ExitCode": "0:0", "NNodes": "2", "NodeList": "node[1-2]", "NTasks": "2"}]
    known[0] |= SETTLED
    parts = [
        known[0] | {"JobID": f"56_{n}{step}", "JobIDRaw": f"{56 + n}{step}"} for n in (1, 3) for step in ("", ".0")
    ]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{install_sacct(tmp_path, parts)}:{os.environ['PATH']}")
    write(tmp_path / "slurm-56_1.out", 57)
    write(tmp_path / "slurm-56_3.out", 59)
    for target in ("56_3", "56", "59"):
        done = subprocess.run([*SRUNBOOK, "--json", target], capture_output=True, text=True, check=False)
        assert done.returncode == json.loads(done.stdout)["status"] == Cause.VERIFIED, done.stdout
