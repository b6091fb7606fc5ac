"""Run records: one line from every rank at its start and one at its end.

A program needs no library to print them::

    print("record " + json.dumps({"event": "end", "rank": 0, "steps": 440, "params_sha256": None}))
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from srunbook.formats._files import FormatError, build, check_sha256, parse_json

MARK = re.compile(r'(?<![A-Za-z_])record (\{\s*".*)')
"""What a record line contains, behind a label of the launcher, such as `[0]` or `0:`, or a piece of gloo's greeting."""


@dataclass(frozen=True)
class StartRecord:
    """Where and as what a rank started.

    Args:
        rank: Its rank, from 0.
        world_size: Number of ranks it belongs to.
        local_rank: Its rank among those on its node.
        host: Name of its node.
        pid: Its process id on that node.
        backend: What carries the collectives: `gloo`, `nccl`, or `none`.
        device: What computes: `cpu`, `cuda`.
        framework: Name and version, as in `jax 0.10.2`.
        job: Slurm's job id, or None outside a job.
        epochs: Number of epochs that it was asked for, or None where it does not count in epochs.
    """

    rank: int
    world_size: int
    local_rank: int
    host: str
    pid: int
    backend: str
    device: str
    framework: str
    job: str | None = None
    epochs: int | None = None

    def __post_init__(self) -> None:
        """Refuses a place that there is not."""
        _check_not_negative(rank=self.rank, local_rank=self.local_rank, epochs=self.epochs or 0)
        if self.rank >= self.world_size:
            raise FormatError(f"'rank' is {self.rank} in a world of {self.world_size}; ranks count from 0")


@dataclass(frozen=True)
class EndRecord:
    """How a rank ended.

    Args:
        rank: Its rank, from 0.
        steps: Number of optimizer steps (or collectives) it made.
        params_sha256: SHA-256 of its parameters, or None where it has none.
    """

    rank: int
    steps: int
    params_sha256: str | None = None

    def __post_init__(self) -> None:
        """Refuses negative numbers and a digest of another form."""
        _check_not_negative(rank=self.rank, steps=self.steps)
        if self.params_sha256 is not None:
            check_sha256("end", "params_sha256", self.params_sha256)


def _check_not_negative(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 0:
            raise FormatError(f"{name!r} is {number}; it is 0 or more")


KINDS = {"start": StartRecord, "end": EndRecord}


def parse_records(lines: Iterable[str]) -> list[StartRecord | EndRecord]:
    """Finds the run records in the output of a job, in the order of the output.

    Args:
        lines: Lines of output. Other text may stand before a record, as a launcher's label does, and after it:
            several threads of a process may write to one line.

    A JSON object without the field `event` is other output.

    Raises:
        FormatError: A line announces a record, but what follows is no valid one.

    >>> parse_records(['[0] record {"event": "end", "rank": 0, "steps": 440}', "other output"])
    [EndRecord(rank=0, steps=440, params_sha256=None)]
    """
    records: list[StartRecord | EndRecord] = []
    for line in lines:
        match = MARK.search(line)
        if not match:
            continue
        text = match[1].strip()
        try:
            data = parse_json(text, rest=True)
        except ValueError as error:
            raise FormatError(f"run record is not JSON ({error}): {_short(text)}") from None
        if "event" not in data:
            continue
        event = data.pop("event")
        if not isinstance(event, str) or event not in KINDS:
            known = ", ".join(KINDS)
            raise FormatError(f"run record has the unknown event {event!r}; known are {known}: {_short(text)}")
        records.append(build(KINDS[event], data, f"run record {_short(text)}"))
    return records


def _short(text: str) -> str:
    return text if len(text) <= 400 else f"{text[:397]}..."
