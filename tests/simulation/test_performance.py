"""The section *Performance*: programs that print their speed and write traces, and the program that reads these.

`pytest tests/simulation/test_performance.py --record` writes what they print.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import forked
from support.programs import losses
from support.reader import Reader

from recordings import read_recording, recording_path
from recordings.comparing import Mask
from recordings.library_lines import aborted_at_exit

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "performance"
TIME_PARTS = EXAMPLES / "time_parts.py"
TRAFFIC = ROOT / "examples" / "gloo_ddp" / "full"

TIMES = (
    Mask(r" *\d+\.\d\d\b", " <n>", "machines are not equally fast, and the table has columns"),
    Mask(r"\b\d+(?= images/s| tokens/s|%)", "<n>", "machines are not equally fast"),
    Mask(r"of a step, .*", "of a step, <part>", "so another part may be the largest"),
)

BANDWIDTHS = (Mask(r" +[\d.]+ us +[\d.]+ MB/s", " <n> us <n> MB/s", "machines are not equally fast"),)

LADDER = {
    "throughput.py": ROOT / "examples" / "torchrun" / "ddp.py",
    "throughput_gpt.py": ROOT / "examples" / "does_not_fit" / "fsdp.py",
    "throughput_jax.py": ROOT / "examples" / "jax_multinode" / "data_parallel.py",
    "throughput_lightning.py": ROOT / "examples" / "lightning" / "ddp.py",
}


@pytest.fixture(scope="module")
def run(quick_start: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[forked.Run]:
    """Run a program in a folder."""
    with forked.running(EXAMPLES, tmp_path_factory) as start:
        yield start


def parts(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run time_parts.py."""
    command = [sys.executable, TIME_PARTS, folder]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def messages(text: str) -> dict[int, float]:
    """Return how many collectives of each size, in bytes, the program lists for a step."""
    found = re.findall(r"collectives in a step: ([\d.]+) of ([\d,]+) bytes", text)
    return {int(size.replace(",", "")): float(count) for count, size in found}


# Speed ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LADDER)
def test_speed_is_printed(name: str, reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rung prints its speed, as on the page, and learns what the rung before it learns."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    program = EXAMPLES / name
    (command,) = reader.commands(program)
    printed = reader.run(program, command)
    if printed.exit_code != 0 and aborted_at_exit(printed.text):
        pytest.xfail("PyTorch's gloo aborted at exit: docs/troubleshooting/torch-abort-at-exit.md")
    assert printed.exit_code == 0, printed.text
    reader.compare(program, printed, lambda line: "/s" in line, TIMES)

    before = losses(read_recording(recording_path(LADDER[name])).text)
    assert losses(printed.text) == pytest.approx(before, rel=5e-3)
    whole, each, operations = map(float, re.findall(r"([\d.]+) (?:images/s|tokens/s|GFLOP/s)", printed.text))
    ranks = len(set(re.findall(r"rank (\d+)/\d+ end", printed.text)))
    assert whole == pytest.approx(ranks * each, rel=1e-2, abs=ranks)  # both are rounded
    assert operations > 0


def test_operations_of_a_token(run: forked.Run) -> None:
    """The operations that are counted are two for each weight and token in each of three passes, and attention's."""
    printed = run("throughput_gpt.py", 2, edit=("flops() * sequences / world_size", "flops() / CONTEXT * 1e9")).text
    width, layers, context, characters = 64, 4, 32, 13
    weights = layers * 12 * width**2 + width * characters

    (counted,) = re.findall(r"([\d.]+) GFLOP/s", printed)
    assert float(counted) == 6 * weights + 12 * layers * width * context


# Traces --------------------------------------------------------------------------------------------------------------


def test_traces_of_a_job(run: forked.Run, reader: Reader) -> None:
    """With small messages, the program lists the 34 gradients, and prints what the page shows."""
    trained = run("slow.py", 2, "small")
    assert trained.statuses == [0, 0], trained.text
    shutil.copytree(trained.folder / "trace-local", reader.folder / "trace-17")
    (command,) = reader.commands(TIME_PARTS)
    printed = reader.run(TIME_PARTS, command)
    reader.compare(TIME_PARTS, printed, lambda _line: True, TIMES)

    assert messages(printed.text) == {262144: 8, 10240: 1, 1024: 24, 140: 0.1, 40: 1}
    assert (reader.folder / "trace-17" / "parts.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("mistake", "expected"),
    [("none", {140: 0.1}), ("data", {140: 0.1}), ("straggler", {140: 0.1}), ("item", {4: 35})],
)
def test_other_mistakes(mistake: str, expected: dict[int, float], run: forked.Run) -> None:
    """The other mistakes train as well as without one, in two buckets; one sends each number of the log by itself."""
    trained = run("slow.py", 2, mistake)
    printed = parts(trained.folder / "trace-local")

    assert trained.losses[-1] < trained.losses[0] / 2, trained.text
    assert printed.returncode == 0, printed.stderr
    assert messages(printed.stdout) == {1069096: 1, 1062912: 1} | expected


@pytest.mark.parametrize(
    ("name", "rung"),
    [
        ("profiled.py", "throughput.py"),
        ("profiled_lightning.py", "throughput_lightning.py"),
        ("profiled_jax.py", "throughput_jax.py"),
    ],
)
def test_rung_writes_traces(name: str, rung: str, reader: Reader) -> None:
    """A rung writes a trace of ten steps for each rank, and learns what the rung before it learns."""
    (command,) = reader.commands(EXAMPLES / name)
    trained = reader.run(EXAMPLES / name, command)
    (traces,) = reader.folder.glob("trace-*")
    printed = parts(traces).stdout

    before = losses(read_recording(recording_path(LADDER[rung])).text)
    assert losses(trained.text) == pytest.approx(before, rel=1e-3)
    assert [line.split()[0] for line in printed.splitlines()[:3]] == ["rank", "0", "1"]
    assert float(re.findall(r"collectives in a step: ([\d.]+)", printed)[0]) >= 1


def event(name: str, start: float, end: float, kind: str = "cpu_op", **arguments: Any) -> dict[str, Any]:
    """Return an event of a trace, from one millisecond to another."""
    return {"ph": "X", "name": name, "cat": kind, "ts": 1e3 * start, "dur": 1e3 * (end - start), "args": arguments}


def cpu(late: float) -> list[dict[str, Any]]:
    """Return a step of a rank that joins the all-reduce so many milliseconds later than at 6."""
    return [
        event("ProfilerStep#7", 0, 20, "user_annotation"),
        event("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 2, "user_annotation"),
        event("aten::randn", 1, 2),  # of the data
        event("aten::mm", 3, 7 + late),
        event("gloo:all_reduce", 6 + late, 15, "user_annotation", **{"Input Dims": [[3]], "Input type": ["float"]}),
        event("c10d::allreduce_", 7 + late, 7.5 + late),
        event("aten::add_", 16, 18),
    ]


def gpu(late: float) -> list[dict[str, Any]]:
    """Return the same of a GPU, whose program runs ahead of it."""
    return [
        event("ProfilerStep#7", 0, 20, "user_annotation"),
        event("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 0, 3, "user_annotation"),
        event("ProfilerStep#7", 2, 18, "gpu_user_annotation"),
        event("aten::mm", 0, 20),
        event("nccl:all_reduce", 4, 5, "user_annotation", **{"Input Dims": [[3]], "Input type": ["c10::BFloat16"]}),
        event("Memcpy HtoD", 2, 3, "gpu_memcpy"),
        event("gemm", 3, 7 + late, "kernel"),
        event("ncclDevKernel_AllReduce", 6 + late, 15, "kernel"),
        event("adam", 16, 18, "kernel"),
    ]


def jax(late: float) -> list[dict[str, Any]]:
    """Return the same of JAX."""
    return [
        event("train", 0, 20, step_num="7"),
        event("data", 0, 2),
        event("dot.3", 3, 7 + late, hlo_op="dot.3"),
        event("all-reduce.1", 6 + late, 15, hlo_op="all-reduce.1"),
        event("fusion", 16, 18, hlo_op="fusion"),
    ]


@pytest.mark.parametrize("trace", [cpu, gpu, jax])
def test_parts_of_a_step(trace: Any, tmp_path: Path) -> None:
    """Each moment counts once: computing first, then the transfer as long as the last rank's, then waiting, then data.

    Rank 1 joins two milliseconds late.
    """
    for rank, late in ((0, 0), (1, 2)):
        text = json.dumps({"traceEvents": [{"ph": "M", "name": "process_name"}, *trace(late)]})
        path = tmp_path / f"rank-{rank}.json"
        if trace is jax:
            path = tmp_path / f"rank-{rank}/plugins/profile/now/perfetto_trace.json.gz"
            path.parent.mkdir(parents=True)
            path.write_bytes(gzip.compress(text.encode()))
        else:
            path.write_text(text)
    printed = parts(tmp_path)
    rows = [[float(cell) for cell in line.split()] for line in printed.stdout.splitlines()[1:3]]

    copied = 1 if trace is gpu else 0  # the copy to the GPU counts as computing, and not as waiting for data
    assert rows == [
        [0, 6 + copied, 7, 1, 2, 4 - copied, 20],
        [1, 8 + copied, 6, 0, 2, 4 - copied, 20],
    ], printed.stderr
    assert messages(printed.stdout) == {cpu: {12: 1}, gpu: {6: 1}, jax: {}}[trace]


@pytest.mark.parametrize(
    ("mean", "expected"),
    [
        ({"compute": 9, "transfer": 1}, "computing takes 90% of a step"),
        ({"compute": 3, "other": 1}, "computing takes 75% of a step, other 25%"),
    ],
)
def test_verdict(mean: dict[str, float], expected: str, time_parts: Any) -> None:
    """Unless computing takes four fifths of a step, the largest other part is named."""
    assert time_parts.verdict({0: dict.fromkeys(time_parts.PARTS, 0) | mean}, 7) == expected


@pytest.mark.parametrize(
    ("mistake", "named"),
    [
        ("data", r"data \d+%"),
        ("straggler", r"waiting up to \d+%; rank 1 waits least: the others wait for it"),
        ("item", r"transfer \d+% in 7 collectives"),
        ("small", r"transfer \d+% in 7 collectives"),
    ],
)
def test_verdict_on_each_mistake(mistake: str, named: str, time_parts: Any) -> None:
    """In each run on the real Slurm that the page shows, the verdict names the part that the mistake makes longer."""
    measured = json.loads((ROOT / "bench" / "results" / "slow_parts.json").read_text())
    rows = [row["samples"] for row in measured["configurations"] if row["parameters"]["mistake"] == mistake]
    assert len(rows) == 2
    for number in range(len(rows[0]["step_ms"])):
        ranks = {rank: {part: row[f"{part}_ms"][number] for part in time_parts.PARTS} for rank, row in enumerate(rows)}
        assert re.fullmatch(rf"computing takes \d+% of a step, {named}", time_parts.verdict(ranks, 7))


@pytest.fixture
def time_parts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import the program."""
    monkeypatch.syspath_prepend(EXAMPLES)
    import time_parts  # ty: ignore

    return time_parts


def test_traces_that_cannot_be_compared(tmp_path: Path) -> None:
    """Ranks with different collectives, traces without steps, and folders without traces end with one line."""
    assert "none here: run this where you submitted the job" in parts(tmp_path / "none").stderr
    assert "contains no rank-0.json and no rank-0/" in parts(tmp_path).stderr
    (tmp_path / "rank-0.json").write_text(json.dumps({"traceEvents": cpu(0)}))
    (tmp_path / "rank-1.json").write_text(json.dumps({"traceEvents": cpu(0)[:4]}))
    assert "different numbers of collectives" in parts(tmp_path).stderr
    (tmp_path / "rank-1.json").write_text(json.dumps({"traceEvents": cpu(0)[1:]}))
    assert "rank-1.json contains no steps" in parts(tmp_path).stderr


def test_traces_of_the_full_gloo_program(run: forked.Run, tmp_path: Path) -> None:
    """The traces of train_traffic.py can be read too."""
    command = ["train_traffic.py", "--epochs=1", "--max-steps=24", "--days=7", "--profile", "--results=results"]
    with forked.forking(TRAFFIC) as process:
        ranks = forked.Forked(process, tmp_path).run(
            [str(TRAFFIC / command[0]), *command[1:], f"--data-dir={tmp_path}"],
            nodes=2,
            processes=1,
            before=forked.AS_TASK,
            environ={"BACKEND": "gloo"},
        )
    printed = parts(tmp_path / "results")

    assert [rank["status"] for rank in ranks] == [0, 0], ranks
    assert "collectives in a step: " in printed.stdout, printed.stderr


def test_gpu_pieces_say_what_is_missing(tmp_path: Path) -> None:
    """Without a GPU, a piece that needs one is skipped or fails, all are missing, and what is known is kept."""
    program = ROOT / "bench" / "on_gpu.py"
    command = [sys.executable, program, "--output", tmp_path, "test_failures", "fit_gpu"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    known = json.loads((tmp_path / "pieces.json").read_text())

    assert ended.returncode == 1, ended.stderr
    assert (known["test_failures"]["result"], known["fit_gpu"]["result"]) == ("skipped", "status 2")
    assert "this torch sees no NVIDIA GPU" in (tmp_path / "fit_gpu.log").read_text()
    assert ended.stdout.splitlines()[-1].startswith("missing: one_device_gpu, fit_gpu, ")


# Networks and devices ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bandwidth.py", "bandwidth_jax.py"])
def test_bandwidth_is_measured(name: str, reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program sums tensors of nine sizes, and the bytes that a rank sends divided by the time are the bandwidth."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (command,) = reader.commands(EXAMPLES / name)
    printed = reader.run(EXAMPLES / name, command)
    if name == "bandwidth.py":
        reader.compare(EXAMPLES / name, printed, lambda line: "bytes" in line, BANDWIDTHS)
    (kept,) = reader.folder.glob("bandwidth-*.json")
    rows = json.loads(kept.read_text())["rows"]

    assert printed.exit_code == 0, printed.text
    assert [row["bytes"] for row in rows] == [4**exponent for exponent in range(5, 14)]
    for row in rows:
        assert row["busbw_MBps"] * row["us"] == pytest.approx(row["bytes"])


def test_ways_to_send_less_are_compared(run: forked.Run) -> None:
    """The program times each way with two ranks."""
    printed = run("send_less.py", 2, edits=[("Linear(1024, 1024)", "Linear(64, 64)"), ("BATCH, 1024", "BATCH, 64")])

    assert printed.statuses == [0, 0], printed.text
    assert len(re.findall(r"[\d.]+ ms for 512 rows$", printed.text, re.MULTILINE)) == 8


def test_changes_of_one_device_are_tried(run: forked.Run) -> None:
    """The program trains with one change after the other, and keeps how fast each is.

    Nothing is compiled, which takes 40 seconds: bench/one_device.py does that.
    """
    edits = [("(256, 4, 4, 256, 4)", "(16, 2, 1, 8, 2)"), ("(32, 32)", "(16, 2)"), ("STEPS = 3, 7", "STEPS = 1, 1")]
    printed = run("one_device.py", 1, edits=edits, TORCH_COMPILE_DISABLE="1")
    rows = json.loads((printed.folder / "one-device.json").read_text())

    assert printed.statuses == [0], printed.text
    assert [row["kind"] for row in rows] == ["GPT"] * 6 + ["images"] * 4  # this machine has g++
    assert all(row["rate"] > 0 for row in rows)
