"""Measurements: the raw samples behind every figure, and what may be said about scaling from them.

`strong` and `weak` make tables with confidence intervals from a measurement; a table's text states base case, repeats
and limits. `link_bound` and `predict_step` say what the network allows. `read_measurement` alone imports pydantic, and
`plot` alone matplotlib: programs that measure need neither.
"""

from __future__ import annotations

from srunbook.measurements._network import bucket_ends, link_bound, predict_step, ring_bytes
from srunbook.measurements._plot import plot
from srunbook.measurements._samples import (
    Configuration,
    Measurement,
    MeasurementError,
    read_measurement,
    write_measurement,
)
from srunbook.measurements._statistics import Interval, median_interval, ratio_interval
from srunbook.measurements._table import Row, ScalingError, Table, strong, weak

__all__ = [
    "Configuration",
    "Interval",
    "Measurement",
    "MeasurementError",
    "Row",
    "ScalingError",
    "Table",
    "bucket_ends",
    "link_bound",
    "median_interval",
    "plot",
    "predict_step",
    "ratio_interval",
    "read_measurement",
    "ring_bytes",
    "strong",
    "weak",
    "write_measurement",
]
