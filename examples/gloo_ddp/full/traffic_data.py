"""Speeds on a freeway every five minutes: made by a traffic model, or read from a file in the layout of METR-LA.

    python traffic_data.py

The synthetic ones come from the cell transmission model (C. F. Daganzo, The cell transmission model, Transportation
Research Part B 28, 1994): it cuts the road into cells, and moves from one cell into the next as much as the first can
send and the second can take. Jams grow against the traffic, as real ones do.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

STEP_MINUTES = 5
SLOTS = 24 * 60 // STEP_MINUTES  # of a day

# The road: 12 miles with three lanes, and two lanes near the end
CELL_MILES = 0.25
CELLS = 48
TICK_SECONDS = 10  # in which nobody crosses more than one cell
FREE_MPH, WAVE_MPH, LANE_CAPACITY = 65.0, 13.0, 2000.0  # vehicles per hour and lane
JAM_DENSITY = LANE_CAPACITY / FREE_MPH + LANE_CAPACITY / WAVE_MPH  # vehicles per mile and lane
LANES = np.where(np.arange(CELLS) >= 40, 2.0, 3.0)
RAMPS_ON = {8: 700.0, 20: 800.0, 32: 600.0}  # cell: vehicles per hour at the peak
RAMPS_OFF = {14: 0.12, 26: 0.14, 38: 0.3}  # cell: the share that leaves
PEAK_INFLOW = 5800.0  # vehicles per hour at the beginning of the road
SENSOR_CELLS = np.arange(1, CELLS, 2)


@dataclass(frozen=True)
class Speeds:
    """Speeds of all sensors.

    Args:
        mph: Speeds, shape (times, sensors); 0 marks a missing one.
        slots: Five-minute slot of the day, 0 to 287, shape (times,).
        weekend: 1 on Saturdays and Sundays, else 0, shape (times,).
        source: Where the speeds come from.
    """

    mph: np.ndarray
    slots: np.ndarray
    weekend: np.ndarray
    source: str


def demand(days: int, rng: np.random.Generator) -> np.ndarray:
    """Return the demand as a share of the peak, shape (ticks of a day, days)."""
    hour = np.arange(0, 24, TICK_SECONDS / 3600)[:, None]
    weekend = np.arange(days) % 7 >= 5

    def hump(center: float | np.ndarray, width: float) -> np.ndarray:
        return np.exp(-0.5 * ((hour - center) / width) ** 2)

    shift = rng.normal(0, 0.15, days)
    weekday = 0.12 + 0.42 * hump(13, 4.5) + 0.62 * hump(7.8 + shift, 1.1) + 0.62 * hump(17.2 + shift, 1.5)
    share = np.where(weekend, 0.12 + 0.62 * hump(14.5 + shift, 3.5), weekday)
    wobble = np.cumsum(rng.normal(0, 0.04, (25, days)), axis=0)  # from hour to hour
    wobble -= wobble.mean(axis=0)
    below = np.floor(hour[:, 0]).astype(int)
    part = hour - below[:, None]
    return share * rng.normal(1, 0.03, days) * (1 + (1 - part) * wobble[below] + part * wobble[below + 1]).clip(0.5)


def open_lanes(days: int, rng: np.random.Generator) -> list[tuple[int, int, int, int, float]]:
    """Draw incidents: first and last tick, day, cell, and the share of the capacity that remains."""
    incidents = []
    for day in range(days):
        for _ in range(rng.poisson(2.0)):
            start = rng.uniform(6, 20) * 3600 / TICK_SECONDS
            length = min(10 + rng.exponential(25), 90) * 60 / TICK_SECONDS
            cell, left = int(rng.integers(4, CELLS)), float(rng.uniform(0.3, 0.6))
            incidents.append((int(start), int(start + length), day, cell, left))
    return incidents


def drive(days: int, rng: np.random.Generator) -> np.ndarray:
    """Return the mean speeds of all cells in mph over five minutes, shape (days, slots, cells)."""
    hours = TICK_SECONDS / 3600
    wanted = demand(days, rng)
    full = np.broadcast_to(LANE_CAPACITY * LANES, (days, CELLS))
    incidents = open_lanes(days, rng)
    changes = {tick for start, end, *_ in incidents for tick in (start, end)}
    capacity = full.copy()
    density = wanted[0][:, None] * PEAK_INFLOW / FREE_MPH * np.ones(CELLS)  # vehicles per mile
    jam = JAM_DENSITY * LANES
    waiting = np.zeros((days, 1 + len(RAMPS_ON)))  # vehicles before the road and before its ramps
    ticks = len(wanted) // SLOTS
    speeds = np.zeros((days, SLOTS, CELLS))
    for tick, share in enumerate(wanted):
        if tick in changes:
            capacity = full.copy()
            for start, end, day, cell, left in incidents:
                if start <= tick < end:
                    capacity[day, cell] *= left
        sending = np.minimum(FREE_MPH * density, capacity)
        room = np.minimum(WAVE_MPH * (jam - density), capacity)
        entering = np.zeros((days, CELLS))
        for number, (cell, peak) in enumerate(RAMPS_ON.items(), 1):
            waiting[:, number] += share * peak * hours
            merging = np.minimum(waiting[:, number] / hours, 0.3 * room[:, cell])
            waiting[:, number] -= merging * hours
            entering[:, cell] = merging
        flow = np.empty((days, CELLS + 1))
        waiting[:, 0] += share * PEAK_INFLOW * hours
        flow[:, 0] = np.minimum(waiting[:, 0] / hours, room[:, 0])
        waiting[:, 0] -= flow[:, 0] * hours
        flow[:, 1:-1] = np.minimum(sending[:, :-1], room[:, 1:] - entering[:, 1:])
        flow[:, -1] = sending[:, -1]
        leaving = flow[:, 1:].copy()
        for cell, part in RAMPS_OFF.items():
            leaving[:, cell] /= 1 - part
            leaving[:, cell] = np.minimum(leaving[:, cell], sending[:, cell])
            flow[:, cell + 1] = leaving[:, cell] * (1 - part)
        speeds[:, tick // ticks] += np.clip(leaving / np.maximum(density, 1e-9), 3, FREE_MPH) / ticks
        density = np.clip(density + hours / CELL_MILES * (flow[:, :-1] + entering - leaving), 0, jam)
    return speeds


def make_speeds(days: int = 35, seed: int = 0) -> Speeds:
    """Simulate traffic, and read it with sensors that err a little and sometimes fall silent.

    The same days and seed give the same speeds. Each day starts afresh, with the light traffic of midnight.
    """
    rng = np.random.default_rng(seed)
    speeds = drive(days, rng)[:, :, SENSOR_CELLS].reshape(days * SLOTS, len(SENSOR_CELLS))
    speeds = speeds * rng.normal(1, 0.02, len(SENSOR_CELLS)) + rng.normal(0, 1.2, speeds.shape)
    speeds = np.clip(speeds, 1, 80)
    speeds[rng.random(speeds.shape) < 0.01] = 0
    for _ in range(days):  # about once a day a sensor is silent for a few hours
        start, sensor = rng.integers(len(speeds)), rng.integers(len(SENSOR_CELLS))
        speeds[start : start + rng.integers(6, 60), sensor] = 0
    time = np.arange(len(speeds))
    weekend = (time // SLOTS % 7 >= 5).astype(np.int64)
    return Speeds(speeds.astype(np.float32), time % SLOTS, weekend, f"synthetic, {days} days, seed {seed}")


def cached_speeds(folder: Path, days: int, seed: int) -> Speeds:
    """Return the speeds of `make_speeds`, from a file if an earlier run has written it."""
    path = folder / f"synthetic-{days}-days-seed-{seed}.npz"
    if path.exists():
        with np.load(path) as file:
            return Speeds(file["mph"], file["slots"], file["weekend"], str(file["source"]))
    speeds = make_speeds(days, seed)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        np.savez_compressed(file, **vars(speeds))
    Path(file.name).replace(path)  # whole or not at all: another job may read it now
    return speeds


def read_hdf5(path: Path) -> Speeds:
    """Read a table of speeds in the layout of METR-LA and PEMS-BAY.

    Such a file holds one table as pandas writes it: a group (`df` in METR-LA, `speed` in PEMS-BAY) with the speeds in
    `block0_values`, the sensors in `axis0`, and the times in `axis1`, in nanoseconds since 1970. A speed of 0 or
    NaN is missing, and so is every speed at a time that the table leaves out.

    Raises:
        ValueError: The file has another layout.
        OSError: The file cannot be read.
    """
    import h5py

    parts = ("block0_values", "axis0", "axis1")
    try:
        with h5py.File(path) as file:
            tables = [group for group in file.values() if isinstance(group, h5py.Group) and set(parts) <= set(group)]
            if len(tables) != 1:
                raise ValueError(
                    f"--data {path} holds {len(tables)} tables of speeds and should hold one: a group with "
                    f"{', '.join(parts)}, as pandas' to_hdf(key='df') writes it; found: {', '.join(file) or 'nothing'}"
                )
            mph, sensors, times = (tables[0][part][()] for part in parts)
    except OSError as error:
        reason = "no such file" if not Path(path).exists() else str(error)
        raise OSError(f"cannot read --data {path} as HDF5: {reason}") from None
    if mph.ndim != 2 or mph.shape != (len(times), len(sensors)) or not np.issubdtype(mph.dtype, np.number):
        raise ValueError(
            f"--data {path}: block0_values has the shape {mph.shape}; with {len(times)} times and {len(sensors)} "
            f"sensors it should be ({len(times)}, {len(sensors)}), of numbers"
        )
    step = STEP_MINUTES * 60 * 10**9
    if not np.issubdtype(times.dtype, np.integer) or len(times) < 2 or np.any(np.diff(times) <= 0):
        raise ValueError(f"--data {path}: axis1 should hold rising times in nanoseconds, one for each row")
    places = (times - times[0]) // step
    if np.any((times - times[0]) % step) or places[-1] > 4 * len(times):
        raise ValueError(f"--data {path}: the times in axis1 are not {STEP_MINUTES} minutes apart")
    values = np.zeros((int(places[-1]) + 1, len(sensors)), np.float32)
    values[places] = np.nan_to_num(mph, nan=0.0, posinf=0.0, neginf=0.0)
    minutes = times[0] // (60 * 10**9) + STEP_MINUTES * np.arange(len(values))
    weekend = ((minutes // (24 * 60) + 3) % 7 >= 5).astype(np.int64)  # 1970 began on a Thursday
    return Speeds(values, minutes % (24 * 60) // STEP_MINUTES, weekend, f"file {Path(path).name}")


def main() -> None:
    speeds = make_speeds().mph[: 5 * SLOTS]
    there = np.where(speeds > 0, speeds, np.nan).reshape(5, SLOTS, -1)
    print(f"{there.shape[-1]} sensors, {np.mean(speeds == 0):.1%} of their speeds are missing")
    print("mean speed in mph on five days, from the first sensor to the last:")
    for hour in (3, 7, 8, 9, 12, 16, 17, 18, 21):
        means = np.nanmean(there[:, hour * 12 : hour * 12 + 12], axis=(0, 1))
        print(f"{hour:2}:00 ", " ".join(f"{mean:3.0f}" for mean in means))


if __name__ == "__main__":
    main()
