"""The folder of a training's results: nothing in it is overwritten, and every file is there whole or not at all."""

from __future__ import annotations

import csv
import io
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

METRICS = (
    "epoch",
    "train_loss",
    "val_loss",
    "val_mae",
    "val_rmse",
    "epoch_time_sec",
    "throughput_samples_per_sec",
    "data_load_time_sec",
    "compute_time_sec",
    "gpu_util_avg",
    "cpu_util_avg",
)
TIMINGS = ("rank", "host", "epoch", "data_load_time_sec", "compute_time_sec", "all_reduce_time_sec", "epoch_time_sec")
CHECKPOINT = "checkpoint_latest.pth"

Row = list[Any]


def prepare_folder(folder: Path, resume: bool) -> dict[str, Any] | None:
    """Make the folder; return the checkpoint to continue from, if there is one.

    Raises:
        ValueError: The folder already holds results, or its checkpoint is damaged.
        OSError: The folder cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(f"cannot write to --results {folder}: {error.strerror}") from None
    held = sorted(path.name for path in folder.iterdir())
    if held and not resume:
        raise ValueError(
            f"--results {folder} already holds {held[0]}: give another folder, or --resume to continue there"
        )
    path = folder / CHECKPOINT
    if not path.exists():
        return None
    try:
        if damaged := zipfile.ZipFile(path).testzip():  # compares the checksums: torch.load does not
            raise ValueError(f"{damaged} has changed")
        return dict(torch.load(path, weights_only=True))  # without weights_only a file can run commands as you
    except Exception as error:
        raise ValueError(f"{path} is damaged: delete it and start again ({error!r})") from None


def write_whole(path: Path, content: bytes) -> None:
    """Write a file beside its place and move it there: a job may be killed at any moment."""
    beside = path.with_name(f".{path.name}.tmp")  # the same each time: the next save takes what a killed one left
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise OSError(f"cannot write {path}: {error.strerror}; earlier files are whole") from None


def table(columns: tuple[str, ...], rows: list[Row]) -> bytes:
    """Return rows as CSV: losses and errors with six digits after the point, times and rates with four."""

    def text(column: str, value: Any) -> str:
        if not isinstance(value, float):
            return "" if value is None else str(value)
        return f"{value:.6f}" if column.startswith(("train", "val")) else f"{value:.4f}"

    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([text(column, value) for column, value in zip(columns, row, strict=True)] for row in rows)
    return file.getvalue().encode()


def save(folder: Path, model: nn.Module, optimizer: Optimizer, metrics: list[Row], timings: list[Row]) -> None:
    """Write the tables, then the checkpoint, which holds them too: killed in between, a resume writes all again."""
    write_whole(folder / "metrics.csv", table(METRICS, metrics))
    write_whole(folder / "timings.csv", table(TIMINGS, timings))
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "metrics": metrics, "timings": timings}
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_whole(folder / CHECKPOINT, buffer.getvalue())
