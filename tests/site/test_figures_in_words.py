"""What the pages say in words about measured figures: read from the files that the pages draw their tables from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from measurements import Configuration, read_measurement

RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results"


def rows(name: str, **wanted: Any) -> list[Configuration]:
    """Return the rows of a result with these parameters: one at least."""
    configurations = read_measurement(RESULTS / f"{name}.json").configurations
    found = [row for row in configurations if wanted.items() <= row.parameters.items()]
    assert found, f"{name}.json has no row with {wanted}"
    return found


@pytest.mark.parametrize(
    ("name", "wanted", "quantity", "least", "most"),
    [
        ("svgd_speed", {"n": 4096, "d": 8}, "times_faster_than_blackjax", 200, 1e6),
        ("svgd_speed", {"n": 4096, "d": 8}, "times_faster_than_numpyro", 200, 1e6),
        ("svgd_speed", {"n": 4096, "d": 8}, "times_faster_than_phasic", 200, 1e6),
        ("svgd_memory", {"n": 65536}, "peak_MiB", 0, 953),
        ("svgd_scaling", {"trusted": "yes"}, "off_percent", -15, 0),
        ("svgd_sbc", {"draws": "SVGD", "d": 1}, "sd_ratio", 0.95, 1.05),
        ("svgd_sbc", {"draws": "SVGD", "d": 2}, "sd_ratio", 0.95, 1.05),
        ("svgd_per_device", {"particles_per_device": 2}, "speedup", 0.58, 0.77),
        ("svgd_per_device", {"particles_per_device": 8}, "speedup", 0.58, 0.77),
        ("svgd_per_device", {"particles_per_device": 16}, "speedup", 0, 1),
        ("svgd_per_device", {"particles_per_device": 32}, "speedup", 1, 9),
        ("cluster_killed", {}, "processes_left", 0, 0),
        ("cluster_killed", {}, "mounts_left", 0, 0),
        ("does_not_fit", {}, "loss_in_float64", 0, 1e-9),
        ("does_not_fit", {}, "parameters_in_float64", 0, 1e-9),
        ("does_not_fit_jax", {}, "loss_in_float64", 0, 1e-9),
        ("does_not_fit_jax", {}, "parameters_in_float64", 0, 1e-9),
        ("does_not_fit_jax", {}, "loss_in_float32", 0, 1e-5),
        ("does_not_fit_jax", {}, "parameters_in_float32", 0, 1e-4),
    ],
)
def test_figure_is_within_what_is_said(name: str, wanted: dict[str, Any], quantity: str, least: float, most: float):
    """A median lies within the bounds that a page gives in words."""
    assert all(least <= row.median(quantity) <= most for row in rows(name, **wanted))


def test_the_median_takes_up_to_half_of_a_small_step() -> None:
    """With 256 particles, a step with a fixed bandwidth takes half of a step with the median, or more."""
    assert all(2 * row.median("step_fixed_ms") >= row.median("step_ms") for row in rows("svgd_speed", n=256))


def test_what_checkpoints_survive() -> None:
    """The table of outcomes has a row for each trial without and with a check, and a column for each library."""
    page = RESULTS.parents[1] / "docs" / "guides" / "checkpoints.md"
    table = page.read_text(encoding="utf-8").partition("{.measured}\n")[2].partition("\n\n")[0]
    head, _, *lines = [[cell.strip() for cell in line.split("|")[2:-1]] for line in table.splitlines()]
    measured = {check: rows("checkpoint_kinds", check=check) for check in ("without", "with")}

    assert head == ["check", *(row.parameters["library"] for row in measured["with"])]
    assert lines == [
        [check, *(row.parameters[trial] for row in chosen)]
        for trial in ("killed", "truncated", "flipped", "missing", "full", "two", "ranks")
        for check, chosen in measured.items()
    ]


def test_layouts_agree_in_32_bits() -> None:
    """Where a layout of PyTorch ran in 32 bits, too, losses agree within 1e-5 and parameters within 1e-4."""
    found = [row for row in rows("does_not_fit") if row.parameters["program"] != "every_layout.py"]

    assert all(row.median("loss_in_float32") <= 1e-5 for row in found)
    assert all(row.median("parameters_in_float32") <= 1e-4 for row in found)


def test_activations_of_models_that_do_not_fit() -> None:
    """What autograd keeps at most on a rank is within 15% of the formula, recomputed blocks included."""
    for row in [*rows("fit_activations"), *rows("fit_less_memory", shows="recomputation")]:
        assert row.median("kept_MiB") == pytest.approx(row.median("formula_MiB"), rel=0.15), row.name


def test_start_of_processes() -> None:
    """`initialize_distributed()` adds at most 50 ms to JAX's own call."""
    added = [row.median("added_ms") for row in rows("distributed_start") if "added_ms" in row.samples]

    assert len(added) == 2
    assert max(added) <= 50


def test_cpus_that_are_far_apart() -> None:
    """Where two CPUs share no cache, one device with two threads takes twice as long, and two devices do not."""
    steps = {(row.parameters["devices"], row.parameters["cpus"]): row.median("step_ms") for row in rows("svgd_cores")}

    assert steps[1, "far apart"] > 2 * steps[1, "close"]
    assert steps[2, "far apart"] < 1.25 * steps[2, "close"]


def test_traffic_of_models_that_do_not_fit() -> None:
    """What each program sends is within 15 per cent of the formula for gloo, and has the ratios that we name."""
    found = {row.name: row for row in rows("fit_traffic", pieces=1)}
    sent = {name: row.median("counted_MB") for name, row in found.items()}

    assert all(1 <= sent[name] / row.median("formula_for_gloo_MB") < 1.15 for name, row in found.items())
    assert 0.3 < sent["pipeline.py"] / sent["ddp.py"] < 0.37
    assert 8.5 < sent["tensor_parallel.py"] / sent["ddp.py"] < 9.5


def test_traffic_of_accumulated_gradients() -> None:
    """Gradients sent once halve the traffic of four pieces; with parameters fetched once it is below that of one."""
    each, last, once = (row.median("counted_MB") for row in rows("fit_traffic", pieces=4))
    (whole,) = rows("fit_traffic", program="fsdp.py", pieces=1)

    assert 0.45 < last / each < 0.55
    assert once < whole.median("counted_MB") < last


@pytest.mark.parametrize("name", ["does_not_fit_checkpoints", "does_not_fit_jax_checkpoints"])
def test_checkpoint_of_each_layout_is_read_in_each(name: str) -> None:
    """Every layout has read what every one wrote, and all trainings ended within 1e-9 of the unbroken one."""
    found = {row.name: row.samples for row in rows(name)}

    assert len(found) >= 7
    for writer, samples in found.items():
        assert samples.keys() == found.keys(), writer
        assert all(one < 1e-9 for measured in samples.values() for one in measured), writer


def test_step_over_slow_links() -> None:
    """At 100 Mbit/s a step of DDP takes three times as long, of tensor parallelism twice, of a pipeline no longer."""
    measured = {row.name: row for row in rows("fit_step_times", ranks=4)}
    slower = {name: row.median("at_100_Mbit/s_ms") / row.median("unlimited_ms") for name, row in measured.items()}

    assert 2.5 < slower["ddp.py"] < 3.5
    assert 1.75 < slower["tensor_parallel.py"] < 2.5
    assert slower["pipeline.py"] < 1.1
