"""What a job leaves behind, as it should be: logs, metrics and rows of sacct. A test changes one thing."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from srunbook import verify
from srunbook.cli.verify import FORMS
from srunbook.slurm import Accounting, parse_sacct
from srunbook.verify import Cause, Outcome

HEADER = "JobID|State|ExitCode|NNodes|NTasks|Elapsed|NodeList"
COLUMNS = (
    "epoch,train_loss,val_loss,val_mae,val_rmse,epoch_time_sec,throughput_samples_per_sec,data_load_time_sec,"
    "compute_time_sec,gpu_util_avg,cpu_util_avg"
)
COMPLETED = """\
17|COMPLETED|0:0|2||00:01:30|node[1-2]
17.batch|COMPLETED|0:0|1|1|00:01:30|node1
17.0|COMPLETED|0:0|2|2|00:01:28|node[1-2]
"""


def line(rank: int, world_size: int, event: str, fields: dict[str, object]) -> str:
    """Return a rank line with the fields that are not None."""
    said = [f"{name}={value}" for name, value in fields.items() if value is not None]
    return " ".join([f"rank {rank}/{world_size} {event}", *said])


def start(rank: int, world_size: int = 2, **changes: object) -> str:
    """Return a start line, with changes."""
    fields = {"host": f"node{rank + 1}", "local_rank": 0, "device": "cpu", "backend": "gloo"}
    fields |= {"framework": "torch-2.13.0", "job": "17", "pid": 70 + rank, "epochs": 3}
    return line(rank, world_size, "start", fields | changes)


def end(rank: int, world_size: int = 2, **changes: object) -> str:
    """Return an end line, with changes."""
    return line(rank, world_size, "end", {"steps": 30, "loss": "0.0144", "params": "ab" * 6} | changes)


def epoch_line(number: int) -> str:
    """Return what rank 0 prints for an epoch."""
    return f"epoch {number}/3  train_loss 0.{number}23456  val_loss 0.{number}50000  val_mae 3.21  val_rmse 4.56"


def epoch_row(number: int) -> str:
    """Return the same epoch in metrics.csv."""
    return f"{number},0.{number}23456,0.{number}50000,3.2149,4.5551,2.5,400.0,0.1,2.4,,81.5"


@dataclass
class Left:
    """What a job left behind in a folder, as it should be; a test changes one thing.

    Args:
        folder: Where the job was submitted.
        logs: Lines of each rank's log.
        metrics: Lines of metrics.csv below the header.
        accounting: Rows of sacct.
        header: Their columns.
        queued: State in squeue.
    """

    folder: Path
    logs: dict[int, list[str]] = field(default_factory=dict)
    metrics: list[str] = field(default_factory=list)
    accounting: str = COMPLETED
    header: str = HEADER
    queued: str = ""

    @property
    def results(self) -> Path:
        """Return the folder of results."""
        return self.folder / "results" / "ddp_cpu_17"

    def write(self) -> None:
        """Write everything."""
        self.results.mkdir(parents=True, exist_ok=True)
        for rank, lines in self.logs.items():
            (self.results / f"rank_{rank}.log").write_text("\n".join(lines) + "\n")
        (self.results / "metrics.csv").write_text("\n".join([COLUMNS, *self.metrics]) + "\n")
        (self.results / "timings.csv").write_text("rank,host,epoch\n0,node1,1\n")
        (self.results / "checkpoint_latest.pth").write_bytes(b"weights")

    def ask(self, job: str) -> Accounting:
        """Answer in place of sacct."""
        text = f"{self.header}\n{self.accounting}"
        return Accounting(tuple(parse_sacct(text)), text=text, queued=self.queued)

    def judge(self, target: str = "17", **options: Any) -> verify.Report:
        """Verify what is there, as the command does."""
        artefacts = verify.collect(target, folder=self.folder, ask=self.ask)
        return verify.judge(artefacts, **{"form": FORMS["ddp_cpu_"]} | options)


def lay_out(folder: Path) -> Left:
    """Lay out what a job of two ranks and three epochs leaves behind."""
    logs = {0: [start(0), *map(epoch_line, (1, 2, 3)), end(0)], 1: [start(1), end(1)]}
    left = Left(folder, logs, [epoch_row(number) for number in (1, 2, 3)])
    left.write()
    return left


def expect(report: verify.Report, cause: Cause, sentence: str) -> None:
    """Expect a failure with this status, from a check that names a next step."""
    (first, *_) = [check for check in report.checks if check.outcome is Outcome.FAILED]

    assert (report.cause, first.cause) == (cause, cause), report.text()
    assert re.search(sentence, first.evidence), first.evidence
    assert first.next_step
    assert f"(status {int(cause)})" in report.text()
