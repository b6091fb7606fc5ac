"""Raw samples, with the command and the machine they came from. Building and writing them needs no other package."""

from __future__ import annotations

import json
import math
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
from typing import Any, ClassVar

from srunbook._files import write_whole
from srunbook._json import STRICT, is_date, read_json

SCHEMA = 1


class MeasurementError(ValueError):
    """A measurement is missing, or does not have the form of one; the message names the file and the field."""


@dataclass(frozen=True)
class Configuration:
    """Raw samples of one configuration.

    Args:
        name: What a row of the table is called.
        parameters: What was set for it.
        samples: For each quantity, named with its unit (`wall_s`, `busbw_MBps`), all its samples.

    Raises:
        MeasurementError: There are no samples, a series is empty, or a number is infinite or undefined.
    """

    __pydantic_config__: ClassVar = STRICT

    name: str
    parameters: dict[str, Any]
    samples: dict[str, list[float]]

    def __post_init__(self) -> None:
        """Reject a configuration without samples, an empty series, and numbers that cannot be drawn."""
        what = f"measurement {self.name!r}"
        _check_finite(what, "parameters", self.parameters)
        if not self.samples:
            raise MeasurementError(
                f"{what} has no samples; it has some for each quantity, as in {{'wall_s': [1.0, 1.1]}}"
            )
        for quantity, values in self.samples.items():
            if not values or not all(map(_is_finite, values)):
                raise MeasurementError(f"{what}: {quantity!r} is empty or not finite: {reprlib.repr(values)}")

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
        MeasurementError: The schema is another, the date is not one, there are no configurations, or a number is
            infinite or undefined.
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
        """Check the stamp."""
        if self.schema != SCHEMA:
            raise MeasurementError(f"measurement has schema {self.schema}; this version reads {SCHEMA}")
        if not is_date(self.date):
            raise MeasurementError(f"measurement: 'date' is {self.date!r}; it reads like 2026-11-20")
        _check_finite("measurement", "machine", self.machine)
        _check_finite("measurement", "parameters", self.parameters)
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
        return cls(
            command=command,
            commit=_commit(),
            date=datetime.now(UTC).date().isoformat(),
            machine={**_machine(), **(machine or {})},
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
    """
    return write_whole(path, json.dumps(asdict(measurement), indent=2) + "\n")


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


def _is_finite(value: float) -> bool:
    """Tell whether a number can be drawn: neither infinite, nor undefined, nor too large for a float."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _check_finite(what: str, name: str, value: Any) -> None:
    """Reject numbers that JSON does not have, at any depth of a value."""
    values = [value]
    for item in values:  # grows as it goes
        if isinstance(item, Mapping):
            values += item.values()
        elif isinstance(item, (list, tuple)):
            values += item
        elif isinstance(item, (int, float)) and not _is_finite(item):
            raise MeasurementError(f"{what}: {name!r} holds {reprlib.repr(item)}, which is not finite")
