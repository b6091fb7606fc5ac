"""Checks of the files in a folder of results."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from srunbook.verify._artefacts import Artefacts
from srunbook.verify._causes import Cause
from srunbook.verify._logs import Log, RankRun
from srunbook.verify._metrics import Epoch, MetricsError, parse_metrics
from srunbook.verify._report import Check, failed, not_proven, passed

NO_METRICS = "there is no readable metrics.csv"
FINAL = ("train_loss", "val_loss", "val_mae", "val_rmse", "throughput_samples_per_sec")
"""What a job is judged by: the columns of the last epoch that are told."""


def check_files(artefacts: Artefacts) -> Check:
    """Every required file is there and not empty."""
    missing = [name for name, size in artefacts.sizes.items() if size is None]
    empty = [name for name, size in artefacts.sizes.items() if size == 0]
    look = "did rank 0 come to its end? See its log, and whether the folder can be written: ls -ld"
    if missing or empty:
        found = [f"{', '.join(names)} {word}" for names, word in ((missing, "missing"), (empty, "empty")) if names]
        cause = Cause.FILE_MISSING if missing else Cause.FILE_EMPTY
        return failed("files", cause, f"{' and '.join(found)} in {artefacts.results}", f"{look} {artefacts.results}")
    return passed("files", ", ".join(f"{name} {size} bytes" for name, size in artefacts.sizes.items()))


def read_epochs(artefacts: Artefacts) -> tuple[Check, list[Epoch]]:
    """The file metrics.csv has the form that it should have. Returns its lines, too."""
    if not artefacts.sizes.get("metrics.csv"):
        return not_proven("metrics.csv", NO_METRICS), []
    try:
        if artefacts.metrics is None:
            raise MetricsError(f"{artefacts.sizes['metrics.csv']} bytes are too many for a line for each epoch")
        epochs = parse_metrics(artefacts.metrics)
    except MetricsError as error:
        check = failed(
            "metrics.csv",
            Cause.FILE_MALFORMED,
            str(error),
            "only rank 0 may write this file, whole: under another name first, then renamed",
        )
        return check, []
    return passed("metrics.csv", f"{len(epochs)} line{'' if len(epochs) == 1 else 's'} of 11 columns"), epochs


def check_epochs(epochs: Sequence[Epoch] | None, asked: int | None) -> Check:
    """Every epoch from the first to the last that was asked for stands there once, in order.

    Args:
        epochs: Lines of metrics.csv; None where there is no such file.
        asked: Number of epochs that the ranks were asked for, or None where they do not say.
    """
    if epochs is None:
        return not_proven("epochs", NO_METRICS)
    numbers = [epoch.number for epoch in epochs]
    last = max([asked or 0, *numbers])
    twice = [number for number, times in Counter(numbers).items() if times > 1]
    if twice:
        return failed(
            "epochs",
            Cause.EPOCH_TWICE,
            f"epoch {_few(twice)} stands there more than once",
            "a resumed run has to leave out what it trains again: write metrics.csv anew from the history",
        )
    missing = sorted(set(range(1, min(last, len(numbers) + 9) + 1)) - set(numbers))
    if missing or not numbers:
        of = f"{asked} were asked for" if asked is not None else f"the last one is {last}"
        return failed(
            "epochs",
            Cause.EPOCH_MISSING,
            f"epoch {_few(missing)} is missing; {of}" if missing else "there is no epoch",
            "did the job end early? See the log of rank 0, and resume from the checkpoint",
        )
    if numbers != sorted(numbers) or 0 in numbers or (asked is not None and last > asked):
        order = f"the epochs are {_few(numbers)}; expected 1 to {asked if asked is not None else last}, in order"
        return failed("epochs", Cause.EPOCH_ORDER, order, "is the file that of another run, or of two?")
    if asked is None:
        return not_proven("epochs", f"1 to {last}; how many were asked for, no start record says")
    return passed("epochs", f"1 to {last}, as asked for")


def check_finite(epochs: Sequence[Epoch] | None) -> Check:
    """Every number is finite."""
    if not epochs:
        return not_proven("numbers", NO_METRICS if epochs is None else "there is no epoch")
    for epoch in epochs:
        wrong = [f"{name} is {value}" for name, value in epoch.values.items() if not math.isfinite(value)]
        if wrong:
            return failed(
                "numbers",
                Cause.NOT_FINITE,
                f"epoch {epoch.number}: {', '.join(wrong)}",
                "training diverged: look at the epoch before, lower the learning rate, and check the data for gaps",
            )
    last = epochs[-1].values
    return passed("numbers", f"finite; at the end {', '.join(f'{name} {last[name]:g}' for name in FINAL)}")


def check_losses(epochs: Sequence[Epoch] | None, log: Log | None) -> Check:
    """What metrics.csv says of each epoch is what rank 0 printed, to the last digit that it printed."""
    if not epochs:
        return not_proven("losses", NO_METRICS if epochs is None else "there is no epoch")
    if log is None or not log.epochs:
        where = "there is no log of rank 0" if log is None else f"{log.name} has no line for an epoch"
        return not_proven("losses", where, "have rank 0 print a line such as: epoch 3/10  train_loss 0.123456")
    silent = [epoch.number for epoch in epochs if epoch.number not in log.epochs]
    if silent:
        return failed(
            "losses",
            Cause.LOSS_DIFFERS,
            f"{log.name} has no line for epoch {_few(silent)}, which metrics.csv has",
            "is the file that of another run?",
        )
    compared = 0
    for epoch in epochs:
        for name, text in log.epochs[epoch.number].items():
            if name not in epoch.values:
                continue
            compared += 1
            if not _same(epoch.values[name], text):
                return failed(
                    "losses",
                    Cause.LOSS_DIFFERS,
                    f"epoch {epoch.number}: {name} is {epoch.values[name]:g} in metrics.csv and {text} in {log.name}",
                    "one of the two is of another run, or was changed after it: run the job again",
                )
    return passed("losses", f"{compared} numbers of {len(epochs)} epochs agree with {log.name}")


def _same(value: float, text: str) -> bool:
    """Whether a number is one that was printed, rounded, as this text."""
    digits = len(text.partition(".")[2]) if "e" not in text else 0
    if not math.isfinite(value) or not math.isfinite(float(text)):
        return str(value) == text
    if "e" in text:
        return math.isclose(value, float(text), rel_tol=1e-3)
    return abs(value - float(text)) <= 0.51 * 10.0**-digits


def asked_epochs(runs: Sequence[RankRun], log: Log | None) -> int | None:
    """How many epochs the ranks were asked for: as they say at the start, or else as rank 0 counts."""
    said = [run.start.epochs for run in runs if run.start.epochs is not None]
    return max(said, default=log.asked if log else None)


def _few(numbers: Sequence[int]) -> str:
    return ", ".join([*map(str, numbers[:8]), *(["..."] if numbers[8:] else [])])
