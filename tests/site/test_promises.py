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


def test_ends_of_up_at_any_instant() -> None:
    """Twenty ends of `srunbook cluster up` left nothing once the next command had ended, and none of these failed."""
    found = rows("cluster_killed")

    assert {row.parameters["signal"] for row in found} == {"SIGKILL", "SIGINT", "SIGTERM"}
    assert sum(len(row.samples["at_s"]) for row in found) == 20
    for row in found:
        left = [quantity for quantity in row.samples if quantity.endswith("_left")]
        assert {"processes_left", "mounts_left", "interfaces_left", "namespaces_left", "cgroups_left"} <= {*left}
        assert not any(sum(row.samples[quantity]) for quantity in [*left, "next_failed"]), row.name


def test_start_of_processes() -> None:
    """`initialize_distributed()` adds at most 50 ms to JAX's own call."""
    added = [row for row in rows("distributed_start") if "added_ms" in row.samples]

    assert {row.parameters["processes_start"] for row in added} == {"as they come", "process 0 first"}
    assert all(row.median("added_ms") <= 50 for row in added)


@pytest.mark.parametrize("kind", ["strong", "weak"])
def test_predicted_steps(kind: str) -> None:
    """On two nodes the prediction was to be trusted; all trusted ones were too short, by less than 15 per cent."""
    (row,) = rows("svgd_scaling", kind=kind, link="100mbit", cluster_nodes=2, nodes=2)
    trusted = rows("svgd_scaling", trusted="yes")

    assert row in trusted
    assert all(-15 < one.median("off_percent") < 0 for one in trusted)


@pytest.mark.parametrize("quota", [0.9, 0.45])
def test_steps_far_from_the_fit(quota: float) -> None:
    """Of the predictions for one node, that for the most particles fell the furthest short."""
    found = rows("svgd_scaling", trusted="yes", link="100mbit", quota=quota, nodes=1)
    off = {row.parameters["n"]: row.median("off_percent") for row in found}

    assert sorted(off) == sorted(off, key=off.__getitem__, reverse=True)
    assert len(off) == 2


def test_calibration() -> None:
    """In one and two dimensions the median standard deviation is within 5 per cent of the exact one."""
    found = [row for row in rows("svgd_sbc", draws="SVGD") if row.parameters["d"] <= 2]

    assert {row.parameters["d"] for row in found} == {1, 2}
    assert all(abs(row.median("sd_ratio") - 1) < 0.05 for row in found)


def test_particles_on_each_device() -> None:
    """Two nodes pay from about 32 particles on each device; with 2 to 8 they take half as long again."""
    speedups = {row.parameters["particles_per_device"]: row.median("speedup") for row in rows("svgd_per_device")}

    assert all(1.3 < 1 / speedups[count] < 1.7 for count in (2, 4, 8))
    assert max(speedup for count, speedup in speedups.items() if count <= 16) < 1
    assert min(speedup for count, speedup in speedups.items() if count >= 32) > 1


def test_cpus_that_are_far_apart() -> None:
    """Where two CPUs share no cache, one device with two threads takes twice as long, and two devices do not."""
    steps = {(row.parameters["devices"], row.parameters["cpus"]): row.median("step_ms") for row in rows("svgd_cores")}

    assert steps[1, "far apart"] > 2 * steps[1, "close"]
    assert steps[2, "far apart"] < 1.25 * steps[2, "close"]


def test_traffic_of_models_that_do_not_fit() -> None:
    """What each program sends is within 15 per cent of the formula for gloo, and has the ratios that we name."""
    found = {row.name: row for row in rows("fit_traffic", pieces=1)}
    sent, gloo, nccl = (
        {name: row.median(quantity) for name, row in found.items()}
        for quantity in ("counted_MB", "formula_for_gloo_MB", "predicted_for_NCCL_MB")
    )

    assert len(found) == 6
    assert all(1 <= one / gloo[name] < 1.15 for name, row in found.items() for one in row.samples["counted_MB"])
    assert 0.3 < sent["pipeline.py"] / sent["ddp.py"] < 0.37
    assert 8.5 < sent["tensor_parallel.py"] / sent["ddp.py"] < 9.5
    assert all(1.45 < gloo[name] / nccl[name] < 1.55 for name in ("fsdp.py", "tensor_parallel.py"))
    assert all(gloo[name] == nccl[name] for name in ("ddp.py", "pipeline.py"))


def test_traffic_of_accumulated_gradients() -> None:
    """Gradients sent once halve the traffic of four pieces; with parameters fetched once it is below that of one."""
    each, last, once = (row.median("counted_MB") for row in rows("fit_traffic", pieces=4))
    (whole,) = rows("fit_traffic", program="fsdp.py", pieces=1)

    assert 0.45 < last / each < 0.55
    assert once < whole.median("counted_MB") < last
    assert all(
        1 <= one / row.median("formula_for_gloo_MB") < 1.15
        for row in rows("fit_traffic", pieces=4)
        for one in row.samples["counted_MB"]
    )


def test_no_kind_of_checkpoint_notices_a_changed_byte() -> None:
    """As the page says, a changed byte is never noticed without a check."""
    for row in rows("checkpoint_kinds", rows="page"):
        assert {name for name in row.samples if name.startswith("flipped_")} == {"flipped_unnoticed_of_10"}, row.name


CONTINUED = ("does_not_fit_checkpoints", "does_not_fit_jax_checkpoints")


@pytest.mark.parametrize("name", CONTINUED)
def test_checkpoint_of_each_layout_is_read_in_each(name: str) -> None:
    """Every layout has read what every one wrote, and all trainings ended within 1e-9 of the unbroken one."""
    found = {row.name: row.samples for row in rows(name)}

    assert len(found) >= 7
    for writer, samples in found.items():
        assert samples.keys() == found.keys(), writer
        assert all(one < 1e-9 for measured in samples.values() for one in measured), writer


@pytest.mark.parametrize("name", ["does_not_fit", "does_not_fit_jax"])
def test_every_layout_computes_the_same(name: str) -> None:
    """In 64 bits every layout ends within 1e-9 of one process, or of one device."""
    for row in rows(name):
        assert max(row.samples["loss_in_float64"] + row.samples["parameters_in_float64"]) < 1e-9, row.name


def test_every_program_is_compared_with_one_process() -> None:
    """The table has a row for each program of the guide that lays a model out in its own way."""
    assert {row.parameters["program"] for row in rows("does_not_fit")} == {
        "ddp.py",
        "fsdp.py",
        "hsdp.py",
        "tensor_parallel.py",
        "fsdp_tp.py",
        "context_parallel.py",
        "pipeline.py",
        "less_memory.py",
        "every_layout.py",
    }


def test_step_over_slow_links() -> None:
    """At 100 Mbit/s a step of DDP takes three times as long, of tensor parallelism twice, of a pipeline no longer."""
    slower = {
        row.name: row.median("at_100_Mbit/s_ms") / row.median("unlimited_ms") for row in rows("fit_step_times", ranks=4)
    }

    assert len(slower) == 6
    assert 2.5 < slower["ddp.py"] < 3.5
    assert 1.75 < slower["tensor_parallel.py"] < 2.5
    assert slower["pipeline.py"] < 1.1
