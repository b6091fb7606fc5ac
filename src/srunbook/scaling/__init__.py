"""From raw timings to what may be said about scaling.

`strong` and `weak` make tables with confidence intervals from a measurement; a table's text states base case, repeats
and limits. `link_bound` and `predict_step` say what the network allows. matplotlib is imported by `plot` alone.
"""

from __future__ import annotations

from srunbook.scaling._model import bucket_ends, link_bound, predict_step, ring_bytes
from srunbook.scaling._plot import plot
from srunbook.scaling._statistics import Interval, median_interval, ratio_interval
from srunbook.scaling._table import Row, ScalingError, Table, strong, weak

__all__ = [
    "Interval",
    "Row",
    "ScalingError",
    "Table",
    "bucket_ends",
    "link_bound",
    "median_interval",
    "plot",
    "predict_step",
    "ratio_interval",
    "ring_bytes",
    "strong",
    "weak",
]
