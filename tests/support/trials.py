"""A job with faults in it, and a row of the table of what came of them."""

from __future__ import annotations

import json
import math
import re
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from srunbook import cluster
from srunbook.cluster import FinishedJob, State
from srunbook.cluster._reconfigure import seconds as in_seconds
from srunbook.ranklog import RankEnd, parse_rank_lines
from srunbook.slurm import is_over, queue_states

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
        return self._queued("RestartCnt")

    def _queued(self, field: str) -> str:
        """Return a field of squeue that no user writes."""
        command = ["squeue", "--noheader", "--states=all", f"--jobs={self.identity}", f"--Format={field}"]
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
        """Set the time limit to a full minute that is at least so many seconds away."""
        self._set_limit(math.ceil((in_seconds(self._queued("TimeUsed")) + seconds) / 60))

    def lift_limit(self) -> None:
        """Give a requeued job, which keeps its time limit, time to end on a slow machine."""
        self._set_limit(AMPLE)

    def _set_limit(self, minutes: int) -> None:
        command = ["scontrol", "update", f"JobId={self.identity}", f"TimeLimit={minutes}"]
        result = cluster.capture(self.state, command)
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


@dataclass(frozen=True)
class Outcome:
    """A row of the table."""

    row: float
    fault: str
    accepted: str
    control: str
    samples: dict[str, list[float]]
