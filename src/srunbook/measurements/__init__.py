"""Measurements: the raw samples behind every figure, and what may be said about scaling from them.

`strong` and `weak` make tables with confidence intervals from a measurement; a table's text states base case, repeats
and limits. Only `read_measurement` imports pydantic, and only `plot` imports matplotlib.
"""

from __future__ import annotations

from srunbook.measurements.intervals import Interval, median_interval, ratio_interval
from srunbook.measurements.samples import (
    Configuration,
    Measurement,
    MeasurementError,
    read_measurement,
    write_measurement,
)
from srunbook.measurements.scaling import Row, Table, plot, strong, weak

__all__ = [
    "Configuration",
    "Interval",
    "Measurement",
    "MeasurementError",
    "Row",
    "Table",
    "median_interval",
    "plot",
    "ratio_interval",
    "read_measurement",
    "strong",
    "weak",
    "write_measurement",
]
