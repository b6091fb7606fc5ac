"""What the programs write and read again: files that are whole or absent."""

import fcntl
import io
import os
import re
import zipfile

import torch
from processes import fail, on_rank_0


def write_whole(path, write):
    """Let a function write a file that is there whole or not at all, whatever happens meanwhile."""
    content = io.BytesIO()
    write(content)  # in memory first: torch.save hides why it cannot write to a disk
    beside = path.with_name(f".{path.name}.tmp")
    try:
        with beside.open("wb") as file:
            file.write(content.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)  # in one step, and only after all of it is on the disk
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise OSError(f"cannot write {path}: {error.strerror}; earlier files are whole") from None


def save_checkpoint(folder, parts, history):
    """Write metrics.csv, then a checkpoint: if the job dies in between, a resume writes both again."""
    lines = [history[0], *(row.values() for row in history)]
    table = "".join(",".join(map(str, line)) + "\n" for line in lines)
    write_whole(folder / "metrics.csv", lambda file: file.write(table.encode()))
    state = {"epoch": len(history), "history": history} | {name: part.state_dict() for name, part in parts.items()}
    write_whole(folder / f"checkpoint_epoch_{len(history)}.pt", lambda file: torch.save(state, file))


def load_checkpoint(folder, name, parts, resume=True):
    """Let model and optimizer continue from the newest checkpoint; return all that it holds, or {} without one."""
    state = on_rank_0(newest_checkpoint, folder, name, resume)
    try:
        for key, part in parts.items() if state else ():
            part.load_state_dict(state[key])
    except (RuntimeError, ValueError, KeyError) as error:
        fail(f"the checkpoint in {folder} is of another model: {' '.join(str(error).split())}")
    return state


def newest_checkpoint(folder, name, resume):
    """Lock the folder until this process ends; return the newest checkpoint in it that is whole."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fcntl.flock(os.open(folder / ".lock", os.O_CREAT | os.O_WRONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(f"another job is training in {folder}: wait, or give another --checkpoint-dir") from None
    except OSError as error:
        if error.filename:  # flock's errors name no file: this file system has no locks
            raise ValueError(f"cannot write in --checkpoint-dir {folder}: {error.strerror}") from None
    paths = checkpoints(folder, name)
    if paths and not resume:
        raise ValueError(f"{folder} holds {paths[-1].name}: give --resume or another --checkpoint-dir")
    for path in reversed(paths):
        try:
            if damaged := zipfile.ZipFile(path).testzip():  # compares the checksums: torch.load does not
                raise ValueError(f"{damaged} has changed")
            return torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch and zipfile raise many kinds
            reason = str(error).split("\n")[0]
            print(f"warning: {path} is damaged, trying the one before ({reason})")
    if paths:
        raise ValueError(f"{folder} holds no checkpoint that is whole: delete them to start over")
    return {}


def checkpoints(folder, name):
    """Return the checkpoints in a folder, the newest last; a copy, such as `checkpoint_epoch_1-good.pt`, is not one."""
    matches = [(re.fullmatch(rf"{name}(\d+)\.pt", path.name), path) for path in folder.iterdir()]
    return [path for _, path in sorted((int(match[1]), path) for match, path in matches if match)]


def draw_curves(folder, history):
    """Draw loss and accuracy of all epochs."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3), layout="constrained")
    for axes, name in zip(figure.subplots(1, 2), ("loss", "accuracy"), strict=True):
        for part in ("train", "test"):
            axes.plot([row["epoch"] for row in history], [row[f"{part}_{name}"] for row in history], label=part)
        axes.set(xlabel="epoch", ylabel=name)
        axes.legend()
    write_whole(folder / "curves.png", figure.savefig)
