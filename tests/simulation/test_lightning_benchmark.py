"""What benchmark.py makes of runs, and what it says where there is nothing to compare."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recordings.comparing import Mask
from srunbook import simulate

ROOT = Path(__file__).resolve().parents[2]
BENCHMARK = ROOT / "examples" / "lightning" / "full" / "benchmark.py"

SETTINGS = {"batch_size": 32, "learning_rate": 0.01, "epochs": 3}
LAYOUTS = {"single_gpu": (1, 1, 8.0), "multi_gpu": (1, 4, 2.5), "multi_node_multi_gpu": (2, 4, 1.6)}
"""Nodes, devices and seconds of an epoch: 1, 3.2 and 5 times as fast."""

Leave = Callable[..., None]


@pytest.fixture
def leave(tmp_path: Path) -> Leave:
    """Write what train.py leaves of one configuration: for each job, the seconds of its epochs."""

    def write(name: str, nodes: int, devices: int, jobs: list[list[float] | None], **settings: Any) -> None:
        folder = tmp_path / "outputs" / name
        folder.mkdir(parents=True)
        configuration = {"nodes": nodes, "devices": devices, **SETTINGS, **settings}
        (folder / "configuration.json").write_text(json.dumps(configuration), encoding="utf-8")
        for number, seconds in enumerate(jobs):
            (folder / str(17 + number)).mkdir()
            if seconds is not None:
                (folder / str(17 + number) / "epoch_seconds.json").write_text(json.dumps(seconds), encoding="utf-8")

    return write


@pytest.fixture
def benchmark(reader: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, int]]:
    """Run benchmark.py beside `outputs`; return what it said, and its status."""

    def run(*names: str) -> tuple[str, int]:
        monkeypatch.chdir(tmp_path)
        answer: tuple[str, int] = reader.alone([sys.executable, BENCHMARK, "--output_dir=outputs", *names])
        return answer

    return run


def rows(said: str) -> dict[str, list[str]]:
    """Cells of the table, by the name of the configuration."""
    table = said[said.index("configuration ") :].partition("\n\n")[0]
    lines = [line.split("  ") for line in table.splitlines()[1:]]
    return {line[0]: [cell.strip() for cell in line[1:] if cell.strip()] for line in lines}


def test_three_configurations_become_a_table(leave: Leave, benchmark: Any, tmp_path: Path) -> None:
    """Time, speed-up and efficiency follow from the epochs after the first, and all samples and a picture are kept."""
    jobs = {
        "single_gpu": [[72.0, 8.0 + number / 10, 8.0 + number / 10] for number in range(-5, 6)],
        "multi_gpu": [[9.0, 2.4], [9.0, 2.5], [9.0, 3.0]],
        "multi_node_multi_gpu": [[9.0, 1.6, 1.7, 1.0]],
    }
    for name, (nodes, devices, _) in LAYOUTS.items():
        leave(name, nodes, devices, jobs[name])
    said, status = benchmark()
    kept = json.loads((tmp_path / "outputs" / "benchmark.json").read_text())

    assert status == 0, said
    assert rows(said) == {
        "single_gpu": ["1 x 1", "1", "11", "8 [7.5, 8.5]", "1.00", "100%"],
        "multi_gpu": ["1 x 4", "4", "3", "2.5 [2.4, 3]", "3.20", "80%"],
        "multi_node_multi_gpu": ["2 x 4", "8", "1", "1.6", "5.00", "62%"],
    }
    assert "Fewer than 10 jobs of multi_gpu, multi_node_multi_gpu: " in said
    assert "In all runs: batch_size 32, learning_rate 0.01, epochs 3" in said
    assert {run["name"]: [*run["epochs_of_jobs"].values()] for run in kept} == jobs
    assert (tmp_path / "outputs" / "benchmark.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_compared_is_named_and_left_out(leave: Leave, benchmark: Any) -> None:
    """Short runs, other settings, equal sizes and jobs that still run lie beside the three scripts."""
    leave("1x1", 1, 1, [[9.0, 8.0]], epochs=2)
    leave("2x2", 2, 2, [[9.0, 2.0]], epochs=2)
    for name, (nodes, devices, seconds) in LAYOUTS.items():
        leave(name, nodes, devices, [[9 * seconds, seconds, seconds], None, [seconds]])
    leave("multi_gpu_again", 2, 2, [[9.0, 2.0]])
    leave("scale_out_4x1", 4, 1, [[9.0, 3.0, 3.0]], learning_rate=0.04, epochs=4)
    said, status = benchmark()
    named, named_status = benchmark("2x2", "scale_out_4x1", "1x1")

    assert status == named_status == 0, said + named
    assert list(rows(said)) == [*LAYOUTS]
    assert "left out: single_gpu/18 has not ended" in said
    assert "left out: single_gpu/19 has not ended" in said
    assert "left out: 1x1 ran with epochs 2, and multi_gpu with epochs 3\n" in said
    assert "left out: scale_out_4x1 ran with learning_rate 0.04, epochs 4, and multi_gpu with " in said
    assert "left out: multi_gpu_again has as many ranks as multi_gpu\n" in said
    assert said.count("left out: ") == 10
    assert list(rows(named)) == ["1x1", "2x2"]


BAD: dict[str, tuple[dict[str, str], str]] = {
    "nothing": ({}, "error: outputs holds nothing of train.py, such as single_gpu/configuration.json: give outputs"),
    "a job that still runs": (
        {"single_gpu/configuration.json": '{"nodes": 1, "devices": 1}', "single_gpu/17/log": ""},
        "error: no job below outputs has ended after two epochs or more; run one: sbatch single_gpu.sbatch",
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
    said, status = benchmark("single_gpu")

    assert status == 2
    assert message in said
    assert "Traceback" not in said
    assert sorted(tmp_path.rglob("*")) == before


MEASURED = Mask(r" +[\d.]+ +\d+\.\d\d +\d+%$", " <measured>", "the processes share the processors of this machine")


@pytest.mark.full
@pytest.mark.usefixtures("quick_start")
def test_table_of_the_page(reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What train.py leaves on 1, 4 and 8 processes becomes the recorded table."""
    monkeypatch.chdir(reader.folder)
    for name, (nodes, devices, _) in LAYOUTS.items():
        argv = [sys.executable, str(BENCHMARK.with_name("train.py")), "--epochs=3", f"--output_dir=outputs/{name}"]
        trained = simulate.run(argv, nodes=nodes, ntasks_per_node=devices)
        assert trained.returncode == 0, trained.output
    run = reader.run(BENCHMARK, reader.commands(BENCHMARK)[0])

    assert run.exit_code == 0, run.text
    reader.compare(BENCHMARK, run, lambda line: " x " in line, [MEASURED])
