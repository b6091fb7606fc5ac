"""What rank 0 writes after each epoch: a checkpoint, the metrics, and their curves.

A file is there whole or not at all. No other rank calls anything in here.
"""

from __future__ import annotations

import csv
import io
import os
import re
import zipfile
from pathlib import Path
from typing import Any

import torch


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all, whatever happens meanwhile."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)  # in one step, and only after all of it is on the disk
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OSError(f"cannot write {path}: {error.strerror}; earlier files are whole") from None


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, the newest last."""
    found = folder.glob("checkpoint_epoch_*.pt")
    return sorted(found, key=lambda path: int(re.sub(r"\D", "", path.name)))


def prepare_folder(folder: Path, resume: bool) -> dict[str, Any] | None:
    """Make the folder for checkpoints; return the newest one that is whole, if wanted."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot make --checkpoint-dir {folder}: {error.strerror}") from None
    write_whole(folder / ".probe", b"")  # better now than after an epoch
    (folder / ".probe").unlink()
    found = checkpoints(folder)
    if not found:
        return None
    if not resume:
        raise ValueError(f"{folder} holds {found[-1].name}: give --resume or another --checkpoint-dir")
    return load_newest(found)


def load_newest(found: list[Path]) -> dict[str, Any] | None:
    """Load the last of some checkpoints that is whole; None if there are none.

    Raises:
        ValueError: All of them are damaged.
    """
    for path in reversed(found):
        try:
            if damaged := zipfile.ZipFile(path).testzip():  # compares the checksums: torch.load does not
                raise ValueError(f"{damaged} has changed")
            return torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # of many kinds, and all mean one thing
            reason = str(error).split("\n")[0]
            print(f"warning: {path} is damaged, trying the one before ({reason})")
    if found:
        raise ValueError(f"{found[-1].parent} holds no checkpoint that is whole: delete them to start over")
    return None


def save(folder: Path, parts: dict[str, Any], history: list[dict[str, float]]) -> None:
    """Write the metrics, then the checkpoint of the last epoch: killed in between, a resume writes both again."""
    text = io.StringIO()
    table = csv.DictWriter(text, history[0])
    table.writeheader()
    table.writerows(history)
    write_whole(folder / "metrics.csv", text.getvalue().encode())
    epoch = len(history)
    state = {name: part.state_dict() for name, part in parts.items()}
    buffer = io.BytesIO()
    torch.save({**state, "epoch": epoch, "history": history}, buffer)
    write_whole(folder / f"checkpoint_epoch_{epoch}.pt", buffer.getvalue())


def draw_curves(folder: Path, history: list[dict[str, float]]) -> None:
    """Draw loss and accuracy of all epochs."""
    from matplotlib.figure import Figure

    epochs = [row["epoch"] for row in history]
    figure = Figure(figsize=(8, 3), layout="constrained")
    for axes, name in zip(figure.subplots(1, 2), ("loss", "accuracy"), strict=True):
        for part in ("train", "test"):
            axes.plot(epochs, [row[f"{part}_{name}"] for row in history], label=part)
        axes.set(xlabel="epoch", ylabel=name)
        axes.legend()
    picture = io.BytesIO()
    figure.savefig(picture)
    write_whole(folder / "curves.png", picture.getvalue())
