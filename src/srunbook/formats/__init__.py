"""The formats that examples, tests, scripts and pages share. Standard library only.

- run records: the line that every rank prints at its start and at its end;
- recordings: what a script or program printed, with the stamp of the run, kept beside it;
- measurements: the raw samples behind every figure.
"""

from __future__ import annotations

from srunbook.formats._files import FormatError, write_whole
from srunbook.formats._measurements import Configuration, Measurement, read_measurement, write_measurement
from srunbook.formats._recordings import (
    Mask,
    Recording,
    compare,
    read_recording,
    recording_path,
    write_recording,
)
from srunbook.formats._records import EndRecord, StartRecord, parse_records

__all__ = [
    "Configuration",
    "EndRecord",
    "FormatError",
    "Mask",
    "Measurement",
    "Recording",
    "StartRecord",
    "compare",
    "parse_records",
    "read_measurement",
    "read_recording",
    "recording_path",
    "write_measurement",
    "write_recording",
    "write_whole",
]
