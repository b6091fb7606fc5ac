"""What the pages say in words about measured figures: read from the files that the pages draw their tables from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from srunbook.measurements import Configuration, read_measurement

RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results"


def rows(name: str, **wanted: Any) -> list[Configuration]:
    """Return the rows of a result with these parameters: one at least."""
    found = [
        row
        for row in read_measurement(RESULTS / f"{name}.json").configurations
        if wanted.items() <= row.parameters.items()
    ]
    assert found, f"{name}.json has no row with {wanted}"
    return found


def test_rows_that_are_not_there() -> None:
    """A row that a file does not have is said to be missing."""
    with pytest.raises(AssertionError, match="has no row with"):
        rows("svgd_speed", n=1)


def test_step_of_svgd() -> None:
    """With 4096 particles in 8 dimensions a step is near its floor, and far faster than that of other packages."""
    (row,) = rows("svgd_speed", n=4096, d=8)

    assert row.median("times_floor") <= 1.6
    assert row.median("times_faster_than_blackjax") >= 200
    assert row.median("times_faster_than_numpyro") >= 200
    assert row.median("times_faster_than_phasic") >= 200


def test_all_sizes_were_measured() -> None:
    """Every size has a row, and each package was measured there or hit a limit that the row names."""
    found = rows("svgd_speed")

    assert {(row.parameters["n"], row.parameters["d"]) for row in found} == {
        (n, d) for n in (256, 1024, 4096, 16384) for d in (2, 8, 64)
    }
    for row in found:
        for package in ("blackjax", "numpyro", "phasic"):
            said = row.parameters[package]
            assert said == "measured" or said.startswith(("120 s: ", "16 GiB: ")), f"{row.name}: {package}: {said}"
            assert (said == "measured") == (f"{package}_ms" in row.samples)


def test_memory_of_many_particles() -> None:
    """A run of 65536 particles takes less than 1 GB."""
    (row,) = rows("svgd_memory", n=65536)

    assert max(row.samples["peak_MiB"]) * 2**20 < 1e9


def test_start_of_processes() -> None:
    """`initialize_distributed()` adds at most 50 ms to JAX's own call."""
    added = [row for row in rows("distributed_start") if "added_ms" in row.samples]

    assert {row.parameters["processes_start"] for row in added} == {"as they come", "process 0 first"}
    assert all(row.median("added_ms") <= 50 for row in added)


@pytest.mark.parametrize("kind", ["strong", "weak"])
def test_predicted_steps(kind: str) -> None:
    """On two nodes the prediction was to be trusted, and no trusted one was off by 10 per cent."""
    (row,) = rows("svgd_scaling", kind=kind, link="100mbit", cluster_nodes=2, nodes=2)
    trusted = rows("svgd_scaling", trusted="yes")

    assert row in trusted
    assert all(abs(one.median("off_percent")) < 10 for one in trusted)


def test_calibration() -> None:
    """In one and two dimensions the median standard deviation is within 5 per cent of the exact one."""
    found = [row for row in rows("svgd_sbc", draws="SVGD") if row.parameters["d"] <= 2]

    assert {row.parameters["d"] for row in found} == {1, 2}
    assert all(abs(row.median("sd_ratio") - 1) < 0.05 for row in found)


def test_particles_on_each_device() -> None:
    """Two nodes pay from between 32 and 128 particles on each device; with 2 to 8 they take 2 to 3 times as long."""
    speedups = {row.parameters["particles_per_device"]: row.median("speedup") for row in rows("svgd_per_device")}

    assert all(1.8 < 1 / speedups[count] < 3.5 for count in (2, 4, 8))
    assert max(speedup for count, speedup in speedups.items() if count <= 32) < 1
    assert min(speedup for count, speedup in speedups.items() if count >= 128) > 1


def test_cpus_that_are_far_apart() -> None:
    """Where two CPUs share no cache, one device with two threads takes twice as long, and two devices do not."""
    steps = {(row.parameters["devices"], row.parameters["cpus"]): row.median("step_ms") for row in rows("svgd_cores")}

    assert steps[1, "far apart"] > 2 * steps[1, "close"]
    assert steps[2, "far apart"] < 1.25 * steps[2, "close"]
