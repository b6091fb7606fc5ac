"""Measurements: the raw samples behind every figure, with the command and the machine they came from."""

from __future__ import annotations

import json
import os
import platform
import reprlib
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from srunbook.formats._files import FormatError, build, check_date, check_finite, is_finite, read_json, write_whole

SCHEMA = 1


@dataclass(frozen=True)
class Configuration:
    """Raw samples of one configuration.

    Args:
        name: What a row of the table is called.
        parameters: What was set for it.
        samples: For each quantity, named with its unit (`wall_s`, `busbw_MBps`), all its samples.
    """

    name: str
    parameters: dict[str, Any]
    samples: dict[str, list[float]]

    def __post_init__(self) -> None:
        """Refuses an empty or non-finite series, and none at all."""
        what = f"measurement {self.name!r}"
        check_finite(what, "parameters", self.parameters)
        if not self.samples:
            raise FormatError(f"{what} has no samples; it has some for each quantity, as in {{'wall_s': [1.0, 1.1]}}")
        for quantity, values in self.samples.items():
            if not values or not all(map(is_finite, values)):
                raise FormatError(f"{what}: {quantity!r} is empty or not finite: {reprlib.repr(values)}")

    def median(self, quantity: str) -> float:
        """Median of one quantity.

        >>> Configuration("a", {}, {"wall_s": [3.0, 1.0, 2.0]}).median("wall_s")
        2.0
        """
        return statistics.median(self.samples[quantity])


@dataclass(frozen=True)
class Measurement:
    """One run of a benchmark program.

    Args:
        command: What was typed.
        commit: Commit of the repository, with `+` where the tree had changes.
        date: ISO date.
        machine: Cores, memory, link, quota, processor: whatever shaped the result.
        versions: Versions of what was measured.
        configurations: The raw samples.
        parameters: What all configurations share (repeats, warm-up, sizes).
        schema: Version of this form.
    """

    command: str
    commit: str
    date: str
    machine: dict[str, str | int | float]
    versions: dict[str, str]
    configurations: list[Configuration]
    parameters: dict[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        """Checks the stamp."""
        if self.schema != SCHEMA:
            raise FormatError(f"measurement has schema {self.schema}; this version reads {SCHEMA}")
        check_date("measurement", self.date)
        check_finite("measurement", "machine", self.machine)
        check_finite("measurement", "parameters", self.parameters)
        if not self.configurations:
            raise FormatError("measurement has no configurations")

    @classmethod
    def taken_now(
        cls,
        command: str,
        configurations: list[Configuration],
        *,
        versions: Mapping[str, str],
        parameters: Mapping[str, Any] | None = None,
        machine: Mapping[str, str | int | float] | None = None,
    ) -> Measurement:
        """A measurement stamped with this machine, this commit and today's date.

        Args:
            command: What was typed.
            configurations: The raw samples.
            versions: Versions of what was measured; Python's is added.
            parameters: What all configurations share.
            machine: What shaped the result beyond cores, memory and processor.
        """
        return cls(
            command=command,
            commit=_commit(),
            date=datetime.now(UTC).date().isoformat(),
            machine={**_machine(), **(machine or {})},
            versions={"python": sys.version.split()[0], **versions},
            configurations=configurations,
            parameters=dict(parameters or {}),
        )


def _commit() -> str:
    def git(*arguments: str) -> str:
        result = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
        return result.stdout.strip() if result.returncode == 0 else ""

    commit = git("rev-parse", "HEAD")
    return f"{commit}{'+' if git('status', '--porcelain', '--untracked-files=no') else ''}" if commit else "unknown"


def _machine() -> dict[str, str | int | float]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "memory_GiB": round(memory, 1),
        "system": f"{platform.system()} {platform.machine()}",
    }


def read_measurement(path: Path) -> Measurement:
    """Reads a measurement.

    Raises:
        FormatError: The file is missing or has not the form of a measurement.
    """
    data = read_json(path)
    if isinstance(data, dict) and isinstance(data.get("configurations"), list):
        data["configurations"] = [build(Configuration, item, str(path)) for item in data["configurations"]]
    return build(Measurement, data, str(path))


def write_measurement(path: Path, measurement: Measurement) -> bool:
    """Writes a measurement whole; returns whether the file changed."""
    return write_whole(path, json.dumps(asdict(measurement), indent=2) + "\n")
