"""Write the table that the training program beside this file reads, the same on every call.

    python make_data.py FILE.csv

It has 1000 rows: six numbers that describe a flat, and its price.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

ROWS = 1000


def make_flats(path: Path) -> None:
    """Write the table; the price, in thousands, is a curved function of the rest and some noise."""
    rng = np.random.default_rng(3)
    area = rng.gamma(9, 8, ROWS) + 18
    rooms = np.maximum(1, np.round(area / 27 + rng.normal(0, 0.6, ROWS)))
    floor, lift = rng.integers(0, 9, ROWS), rng.integers(0, 2, ROWS)
    year, distance = rng.integers(1900, 2024, ROWS), rng.exponential(4, ROWS) + 0.2
    price = area * (2.2 + 3.5 * np.exp(-distance / 4)) + 12 * rooms + 0.012 * (year - 1955) ** 2
    price += floor * np.where(lift, 5, -4) + rng.normal(0, 12, ROWS)
    table = np.column_stack([area, rooms, floor, year, distance, lift, price])
    header = "area_m2,rooms,floor,year_built,km_to_centre,has_lift,price_k"
    np.savetxt(path, table, fmt="%.2f", delimiter=",", header=header, comments="")


if __name__ == "__main__":
    make_flats(Path(sys.argv[1]))
