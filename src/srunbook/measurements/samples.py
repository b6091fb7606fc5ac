"""Raw samples, with the command and the machine they came from. Building and writing them needs no other package."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from srunbook._files import write_whole
from srunbook._json import STRICT, read_json

SCHEMA = 1


class MeasurementError(ValueError):
    """A measurement is missing, or does not hold what is needed; the message says what it holds."""


@dataclass(frozen=True)
class Configuration:
    """Raw samples of one configuration.

    Args:
        name: What a row of the table is called.
        parameters: What was set for it.
        samples: For each quantity, named with its unit (`wall_s`, `busbw_MBps`), all its samples.

    Raises:
        MeasurementError: There are no samples, a series is empty, or a sample is infinite or undefined.
    """

    __pydantic_config__: ClassVar = STRICT

    name: str
    parameters: dict[str, Any]
    samples: dict[str, list[float]]

    def __post_init__(self) -> None:
        """Check the samples."""
        if not self.samples:
            raise MeasurementError(
                f"measurement {self.name!r} has no samples; it has some for each quantity, as in {{'wall_s': [1.0]}}"
            )
        for quantity, values in self.samples.items():
            if not values or not all(map(math.isfinite, values)):
                raise MeasurementError(f"measurement {self.name!r}: {quantity!r} is empty or not finite")

    def median(self, quantity: str) -> float:
        """Return the median of one quantity, in the unit that its name ends with.

        >>> Configuration("a", {}, {"wall_s": [3.0, 1.0, 2.0]}).median("wall_s")
        2.0

        Raises:
            KeyError: The quantity was not measured.
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

    Raises:
        MeasurementError: The schema differs, or there are no configurations.
    """

    __pydantic_config__: ClassVar = STRICT

    command: str
    commit: str
    date: str
    machine: dict[str, str | int | float]
    versions: dict[str, str]
    configurations: list[Configuration]
    parameters: dict[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        """Check the schema, and that something was measured."""
        if self.schema != SCHEMA:
            raise MeasurementError(f"measurement has schema {self.schema}; this version reads {SCHEMA}")
        if not self.configurations:
            raise MeasurementError("measurement has no configurations")

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
        """Stamp samples with this machine, the commit of the current folder's repository, and today's date.

        Args:
            command: What was typed.
            configurations: The raw samples.
            versions: Versions of what was measured; Python's is added.
            parameters: What all configurations share.
            machine: What shaped the result beyond cores, memory and processor.

        Raises:
            MeasurementError: As for `Measurement`.
        """
        describe = ["git", "describe", "--always", "--exclude=*", "--abbrev=40", "--dirty=+"]
        commit = subprocess.run(describe, capture_output=True, text=True, check=False).stdout.strip()
        here: dict[str, str | int | float] = {
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            "memory_GiB": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "system": f"{platform.system()} {platform.machine()}",
        }
        return cls(
            command=command,
            commit=commit or "unknown",
            date=datetime.now(UTC).date().isoformat(),
            machine={**here, **(machine or {})},
            versions={"python": sys.version.split()[0], **versions},
            configurations=configurations,
            parameters=dict(parameters or {}),
        )


def read_measurement(path: Path) -> Measurement:
    """Read a measurement. Needs pydantic.

    Raises:
        MeasurementError: The file is missing or does not have the form of a measurement.
    """
    return read_json(path, Measurement, MeasurementError)


def write_measurement(path: Path, measurement: Measurement) -> bool:
    """Write a measurement whole, and only when it differs.

    Returns:
        Whether the file was written.

    Raises:
        ValueError: A parameter is infinite or undefined, which JSON cannot hold.
    """
    return write_whole(path, json.dumps(asdict(measurement), indent=2, allow_nan=False) + "\n")
