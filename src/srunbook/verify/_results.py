"""Check the files in a folder of results."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from srunbook.verify._artefacts import Artefacts
from srunbook.verify._causes import Cause
from srunbook.verify._form import METRICS, ResultsForm
from srunbook.verify._logs import Log, RankRun
from srunbook.verify._metrics import Metrics, MetricsError, parse_metrics
from srunbook.verify._report import Check, failed, not_proven, passed

NO_METRICS = f"found no readable {METRICS}"
NO_EPOCH = f"{METRICS} holds no epoch"


def check_files(artefacts: Artefacts, form: ResultsForm) -> Check:
    """Check that every required file is there and not empty, and metrics.csv not empty where it is there."""
    names = [*form.required, *(name for name in [METRICS] if name in artefacts.sizes and name not in form.required)]
    missing = [name for name in names if name not in artefacts.sizes]
    empty = [name for name in names if artefacts.sizes.get(name) == 0]
    look = "did rank 0 come to its end? See its log, and whether the folder can be written: ls -ld"
    if missing or empty:
        found = [f"{', '.join(names)} {word}" for names, word in ((missing, "missing"), (empty, "empty")) if names]
        cause = Cause.FILE_MISSING if missing else Cause.FILE_EMPTY
        return failed("files", cause, f"{' and '.join(found)} in {artefacts.results}", f"{look} {artefacts.results}")
    if not names:
        return not_proven(
            "files",
            f"{artefacts.results} has no {METRICS}, and nothing says which files it should hold",
            "name each of them, as in srunbook verify --require model.pt",
        )
    return passed("files", ", ".join(f"{name} {artefacts.sizes[name]} bytes" for name in names))


def read_metrics(artefacts: Artefacts, form: ResultsForm) -> tuple[Check, Metrics | None]:
    """Check that metrics.csv has the form that it should have; return what it holds, too."""
    if not artefacts.sizes.get(METRICS):
        return not_proven(METRICS, NO_METRICS), None
    try:
        if artefacts.metrics is None:
            raise MetricsError(f"{artefacts.sizes[METRICS]} bytes are too many for a line for each epoch")
        metrics = parse_metrics(artefacts.metrics, form)
    except MetricsError as error:
        check = failed(
            METRICS,
            Cause.FILE_MALFORMED,
            str(error),
            "only rank 0 may write this file, whole: under another name first, then renamed",
        )
        return check, None
    lines = f"{len(metrics.epochs)} line{'' if len(metrics.epochs) == 1 else 's'}"
    return passed(METRICS, f"{lines} of {len(metrics.columns)} columns"), metrics


def check_epochs(metrics: Metrics | None, asked: int | None) -> Check:
    """Check that metrics.csv holds every epoch from the first to the last that was asked for once, in order.

    Args:
        metrics: The file, or None if it cannot be read.
        asked: Number of epochs that the ranks were asked for, or None if they do not say.
    """
    if metrics is None:
        return not_proven("epochs", NO_METRICS)
    numbers = [epoch.number for epoch in metrics.epochs]
    last = max([asked or 0, *numbers])
    twice = [number for number, times in Counter(numbers).items() if times > 1]
    if twice:
        return failed(
            "epochs",
            Cause.EPOCH_TWICE,
            f"epoch {_few(twice)} is there more than once",
            "a resumed run has to leave out what it trains again: write metrics.csv anew from the history",
        )
    missing = sorted(set(range(1, min(last, len(numbers) + 9) + 1)) - set(numbers))
    if missing or not numbers:
        of = f"{asked} were asked for" if asked is not None else f"the last one is {last}"
        return failed(
            "epochs",
            Cause.EPOCH_MISSING,
            f"epoch {_few(missing)} is missing; {of}" if missing else NO_EPOCH,
            "did the job end early? See the log of rank 0, and resume from the checkpoint",
        )
    if numbers != sorted(numbers) or 0 in numbers or (asked is not None and last > asked):
        order = f"the epochs are {_few(numbers)}; expected 1 to {asked if asked is not None else last}, in order"
        return failed("epochs", Cause.EPOCH_ORDER, order, "is the file that of another run, or of two?")
    if asked is None:
        return not_proven("epochs", f"1 to {last}; no start line says epochs=, the number that was asked for")
    return passed("epochs", f"1 to {last}, as asked for")


def check_finite(metrics: Metrics | None, form: ResultsForm) -> Check:
    """Check that every number is finite."""
    if not metrics or not metrics.epochs:
        return not_proven("numbers", NO_EPOCH if metrics else NO_METRICS)
    for epoch in metrics.epochs:
        wrong = [f"{name} is {value}" for name, value in epoch.values.items() if not math.isfinite(value)]
        if wrong:
            return failed(
                "numbers",
                Cause.NOT_FINITE,
                f"epoch {epoch.number}: {', '.join(wrong)}",
                "training diverged: look at the epoch before, lower the learning rate, and check the data for gaps",
            )
    last = [f"{name} {value:g}" for name, value in final_values(metrics, form).items()]
    return passed("numbers", f"finite; at the end {', '.join([*last[:8], *(['...'] if last[8:] else [])])}")


def final_values(metrics: Metrics | None, form: ResultsForm) -> dict[str, float]:
    """Return the numbers of the last epoch that the report tells, those that are finite."""
    last = metrics.epochs[-1].values if metrics and metrics.epochs else {}
    names = last if form.final is None else form.final
    return {name: last[name] for name in names if math.isfinite(last.get(name, math.nan))}


def check_losses(metrics: Metrics | None, log: Log | None) -> Check:
    """Check that metrics.csv says of each epoch what rank 0 printed, to the last digit that it printed."""
    if not metrics or not metrics.epochs:
        return not_proven("losses", NO_EPOCH if metrics else NO_METRICS)
    epochs = metrics.epochs
    if log is None or not log.epochs:
        where = "found no log of rank 0" if log is None else f"{log.name} has no line for an epoch"
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
    """Tell whether a number, rounded, prints as this text."""
    digits = len(text.partition(".")[2]) if "e" not in text else 0
    if not math.isfinite(value) or not math.isfinite(float(text)):
        return str(value) == text
    if "e" in text:
        return math.isclose(value, float(text), rel_tol=1e-3)
    return abs(value - float(text)) <= 0.51 * 10.0**-digits


def asked_epochs(runs: Sequence[RankRun], log: Log | None) -> int | None:
    """Return how many epochs the ranks were asked for: as start lines say, or else as rank 0 counts."""
    said = [run.start.epochs for run in runs if run.start.epochs is not None]
    return max(said, default=log.asked if log else None)


def _few(numbers: Sequence[int]) -> str:
    return ", ".join([*map(str, numbers[:8]), *(["..."] if numbers[8:] else [])])
