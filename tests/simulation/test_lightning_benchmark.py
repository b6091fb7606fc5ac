"""What benchmark.py makes of runs, and what it says where there is nothing to compare.

test_lightning.py runs it on what train.py leaves.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from srunbook.measurements import read_measurement

ROOT = Path(__file__).resolve().parents[2]
BENCHMARK = ROOT / "examples" / "lightning" / "full" / "benchmark.py"

SETTINGS = {"batch_size": 32, "learning_rate": 0.01, "epochs": 3}
LAYOUTS = {"single_gpu": (1, 1, 8.0), "multi_gpu": (1, 4, 2.5), "multi_node_multi_gpu": (2, 4, 1.6)}
"""Nodes, devices and seconds of an epoch: 1, 3.2 and 5 times as fast."""

Leave = Callable[..., Path]


@pytest.fixture
def leave(tmp_path: Path) -> Leave:
    """Write what train.py leaves of one configuration: for each job, the seconds of its epochs."""

    def write(name: str, nodes: int, devices: int, jobs: list[list[float] | None], **settings: Any) -> Path:
        folder = tmp_path / "outputs" / name
        folder.mkdir(parents=True)
        configuration = {"nodes": nodes, "devices": devices, **SETTINGS, **settings}
        (folder / "configuration.json").write_text(json.dumps(configuration), encoding="utf-8")
        for number, seconds in enumerate(jobs):
            (folder / str(17 + number)).mkdir()
            if seconds is not None:
                (folder / str(17 + number) / "epoch_seconds.json").write_text(json.dumps(seconds), encoding="utf-8")
        return folder

    return write


@pytest.fixture
def benchmark(reader: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, int]]:
    """Run benchmark.py beside `outputs`; return what it said, and its status."""

    def run(*arguments: str) -> tuple[str, int]:
        monkeypatch.chdir(tmp_path)
        answer: tuple[str, int] = reader.alone([sys.executable, BENCHMARK, *(arguments or ["--output_dir=outputs"])])
        return answer

    return run


def rows(said: str) -> dict[str, list[str]]:
    """Cells of the table, by the name of the configuration."""
    table = said[said.index("configuration ") :].partition("\n\n")[0]
    lines = [line.split("  ") for line in table.splitlines()[1:]]
    return {line[0]: [cell.strip() for cell in line[1:] if cell.strip()] for line in lines}


def test_three_configurations_become_a_table(leave: Leave, benchmark: Any, tmp_path: Path) -> None:
    """Time, speed-up and efficiency follow from the epochs after the first, and JSON and picture are written."""
    for name, (nodes, devices, seconds) in LAYOUTS.items():
        leave(name, nodes, devices, [[9 * seconds, seconds, seconds]])
    said, status = benchmark()
    written = read_measurement(tmp_path / "outputs" / "benchmark.json")

    assert status == 0, said
    assert rows(said) == {
        "single_gpu": ["1 x 1", "1", "1", "8", "1.00", "100%"],
        "multi_gpu": ["1 x 4", "4", "1", "2.5", "3.20", "80%"],
        "multi_node_multi_gpu": ["2 x 4", "8", "1", "1.6", "5.00", "62%"],
    }
    assert "Fewer than 10 repeats for ranks 1, 4, 8" in said
    assert "In all runs: batch_size 32, learning_rate 0.01, epochs 3" in said
    assert {one.name: one.samples for one in written.configurations} == {
        name: {"epoch_s": [layout[2]]} for name, layout in LAYOUTS.items()
    }
    assert (tmp_path / "outputs" / "benchmark.png").read_bytes().startswith(b"\x89PNG")


def test_repeats_give_intervals(leave: Leave, benchmark: Any) -> None:
    """With ten jobs of each, times, speed-up and efficiency have intervals, and nothing is called few."""
    leave("single_gpu", 1, 1, [[9.0, 8.0 + number / 10] for number in range(10)])
    leave("multi_gpu", 1, 4, [[9.0, 2.0 + number / 10] for number in range(10)])
    said, status = benchmark()

    assert status == 0, said
    assert rows(said)["single_gpu"][2:] == ["10", "8.45 [8.1, 8.8]", "1.00", "100%"]
    assert rows(said)["multi_gpu"][2:] == ["10", "2.45 [2.1, 2.8]", "3.45 [2.89, 4.19]", "86% [72%, 105%]"]
    assert "Fewer than" not in said


def test_what_cannot_count_is_left_out(leave: Leave, benchmark: Any) -> None:
    """A job that has not ended, and one of a single epoch, are named and do not count."""
    leave("single_gpu", 1, 1, [[9.0, 8.0], None, [9.0]])
    leave("multi_gpu", 1, 4, [None])
    said, status = benchmark()

    assert status == 0, said
    assert "left out: single_gpu/18 has not ended" in said
    assert "left out: single_gpu/19 has 1 epochs, and the first warms up" in said
    assert "left out: multi_gpu/17 has not ended" in said
    assert rows(said)["single_gpu"] == ["1 x 1", "1", "1", "8", "1.00", "100%"]
    assert "multi_gpu" not in rows(said)


def test_chapters_in_their_order_give_the_table(leave: Leave, benchmark: Any) -> None:
    """Short runs, another batch and another rate lie beside the three scripts: they are named, and left out."""
    leave("1x1", 1, 1, [[9.0, 8.0]], epochs=2)
    leave("2x2", 2, 2, [[9.0, 2.0]], epochs=2)
    for name, (nodes, devices, seconds) in LAYOUTS.items():
        leave(name, nodes, devices, [[9 * seconds, seconds, seconds]])
    leave("single_gpu_64", 1, 1, [[9.0, 8.0, 8.0]], batch_size=64)
    leave("scale_out_4x1", 4, 1, [[9.0, 3.0, 3.0]], learning_rate=0.04)
    said, status = benchmark()

    assert status == 0, said
    assert list(rows(said)) == [*LAYOUTS]
    assert "left out: 1x1 ran with epochs 2, and multi_gpu with epochs 3\n" in said
    assert "left out: single_gpu_64 ran with batch_size 64, and multi_gpu with batch_size 32\n" in said
    assert said.count("left out: ") == 4


def test_named_runs_of_other_settings_are_refused(leave: Leave, benchmark: Any) -> None:
    """Whoever names runs of different settings is told in what they differ, and which to name."""
    leave("4x1", 4, 1, [[9.0, 3.0]], learning_rate=0.04)
    leave("single_gpu", 1, 1, [[9.0, 8.0]])
    leave("multi_gpu", 1, 4, [[9.0, 2.0]])
    hint = "python benchmark.py --output_dir outputs multi_gpu single_gpu"
    said, status = benchmark(*hint.split()[2:], "4x1")
    chosen, chosen_status = benchmark(*hint.split()[2:])

    assert status == 2
    assert (
        f"error: 4x1 ran with learning_rate 0.04, and multi_gpu with learning_rate 0.01; name those to compare: {hint}"
        in said
    )
    assert chosen_status == 0, chosen
    assert list(rows(chosen)) == ["single_gpu", "multi_gpu"]


def test_one_row_for_each_size(leave: Leave, benchmark: Any) -> None:
    """Of two configurations with as many ranks the first counts; whoever names both is told to choose."""
    leave("1x4", 1, 4, [[9.0, 2.0]])
    leave("2x2", 2, 2, [[9.0, 2.0]])
    said, status = benchmark()
    named, named_status = benchmark("--output_dir=outputs", "1x4", "2x2")

    assert status == 0, said
    assert "left out: 2x2 ran on 4 ranks, as 1x4 did\n" in said
    assert list(rows(said)) == ["1x4"]
    assert named_status == 2
    assert "error: 2x2 ran on 4 ranks, as 1x4 did; name those to compare: " in named
    assert named.endswith("--output_dir outputs 1x4\n")


ONE = json.dumps({"nodes": 1, "devices": 1})
BAD: dict[str, tuple[dict[str, str], str]] = {
    "nothing": ({}, "error: there is no folder outputs"),
    "one level too deep": (
        {"configuration.json": ONE},
        "error: outputs holds one configuration; give the folder above: --output_dir={above}",
    ),
    "cut off": (
        {"single_gpu/configuration.json": '{"nodes": 1, '},
        "error: outputs/single_gpu/configuration.json is not as train.py writes it: ",
    ),
    "no seconds": (
        {"single_gpu/configuration.json": ONE, "single_gpu/17/epoch_seconds.json": "[1.0, NaN]"},
        "error: outputs/single_gpu/17/epoch_seconds.json is not as train.py writes it: it holds seconds",
    ),
    "a job that still runs": (
        {"single_gpu/configuration.json": ONE, "single_gpu/17/log": ""},
        "error: no job below outputs has ended after 2 epochs or more; run one: sbatch single_gpu.sbatch",
    ),
}
"""What lies in outputs/, and what is said of it."""


@pytest.mark.parametrize("case", BAD)
def test_bad_input_ends_with_status_2(case: str, benchmark: Any, tmp_path: Path) -> None:
    """Where there is nothing to compare, one line says what was found and what is wanted, and nothing is written."""
    files, message = BAD[case]
    for name, text in files.items():
        path = tmp_path / "outputs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    said, status = benchmark()

    assert status == 2
    assert message.format(above=tmp_path) in said
    assert "Traceback" not in said
    assert sorted(tmp_path.rglob("*")) == before


def test_unknown_name_ends_with_status_2(leave: Leave, benchmark: Any) -> None:
    """A configuration that is not there is named, beside those that are."""
    leave("single_gpu", 1, 1, [[9.0, 8.0]])
    said, status = benchmark("--output_dir=outputs", "multi_gpu")

    assert status == 2
    assert "error: outputs has no multi_gpu; it has single_gpu" in said
