"""Check the files in a folder of results."""

from __future__ import annotations

import math
from collections.abc import Sequence

from srunbook.ranklog import RankStart
from srunbook.verify._artefacts import Artefacts
from srunbook.verify._causes import Cause
from srunbook.verify._form import METRICS, ResultsForm
from srunbook.verify._launches import RankRun
from srunbook.verify._logs import Log
from srunbook.verify._metrics import Metrics, MetricsError, parse_metrics
from srunbook.verify._reading import ends_early
from srunbook.verify._report import Check, failed, not_proven, passed
from srunbook.verify._words import count, few

NO_METRICS = f"found no readable {METRICS}"
NO_EPOCH = f"{METRICS} holds no epoch"
PRINT_LOSS = "have rank 0 print a line such as: epoch 3/10  train_loss 0.123456"


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
    early = [name for name in names if artefacts.results and ends_early(artefacts.results / name)]
    archives = [name for name in early if not name.endswith(".csv")]
    if archives:
        evidence = f"{', '.join(archives)} is cut off: it begins as a zip archive, and has no end"
        return failed("files", Cause.FILE_MALFORMED, evidence, f"was the disk full? {look} {artefacts.results}")
    if early:
        evidence = f"{', '.join(early)} ends in the middle of a line, so its last number may have been cut"
        return not_proven("files", evidence, "write the table whole, with an end to its last line")
    if not names:
        return not_proven(
            "files",
            f"{artefacts.results} has no {METRICS}, and nothing says which files it should hold",
            "name each of them, as in srunbook verify --require model.pt",
        )
    return passed("files", ", ".join(f"{name} {artefacts.sizes[name]} bytes" for name in names))


def read_metrics(artefacts: Artefacts, form: ResultsForm, log: Log | None) -> tuple[Check, Metrics | None]:
    """Check that metrics.csv has the form that it should have; return what it holds, too."""
    if artefacts.metrics is None:
        return not_proven(METRICS, NO_METRICS), None
    try:
        metrics = parse_metrics(artefacts.metrics, form, log)
    except MetricsError as error:
        check = failed(
            METRICS,
            Cause.FILE_MALFORMED,
            str(error),
            "only rank 0 may write this file, whole: under another name first, then renamed",
        )
        return check, None
    return passed(METRICS, f"{count(metrics.epochs.count, 'line')} of {len(metrics.columns)} columns"), metrics


def check_epochs(metrics: Metrics | None, asked: int | None, log: Log | None) -> Check:
    """Check that metrics.csv holds every epoch from the first to the last that was asked for once, in order.

    Args:
        metrics: The file, or None if it cannot be read.
        asked: Number of epochs that the ranks were asked for, or None if they do not say.
        log: The log of rank 0.
    """
    if metrics is None:
        return not_proven("epochs", NO_METRICS)
    epochs = metrics.epochs
    last = max(asked or 0, epochs.last)
    if epochs.twice:
        return failed(
            "epochs",
            Cause.EPOCH_TWICE,
            f"epoch {few(epochs.twice)} is there more than once",
            "a resumed run has to leave out what it trains again: write metrics.csv anew from the history",
        )
    missing = epochs.missing(last)
    if missing or not epochs.count:
        of = f"{asked} were asked for" if asked is not None else f"the last one is {last}"
        return failed(
            "epochs",
            Cause.EPOCH_MISSING,
            f"epoch {few(missing)} is missing; {of}" if missing else NO_EPOCH,
            "did the job end early? See the log of rank 0, and resume from the checkpoint",
        )
    if not epochs.ascending or epochs.count != last or (asked is not None and last > asked):
        order = f"the epochs are {few(epochs.first)}; expected 1 to {asked if asked is not None else last}, in order"
        return failed("epochs", Cause.EPOCH_ORDER, order, "is the file that of another run, or of two?")
    if log and None not in (asked, log.asked) and asked != log.asked:
        evidence = f"{asked} epochs were asked for, and {log.name} counts to {log.asked}"
        return failed("epochs", Cause.EPOCH_ORDER, evidence, "is the log that of another run, or of two?")
    if asked is None:
        return not_proven("epochs", f"1 to {last}; no start line says epochs=, the number that was asked for")
    return passed("epochs", f"1 to {last}, as asked for")


def check_finite(metrics: Metrics | None, form: ResultsForm) -> Check:
    """Check that every number is finite."""
    if not metrics or not metrics.epochs.count:
        return not_proven("numbers", NO_EPOCH if metrics else NO_METRICS)
    if metrics.not_finite:
        return failed(
            "numbers",
            Cause.NOT_FINITE,
            metrics.not_finite,
            "training diverged: look at the epoch before, lower the learning rate, and check the data for gaps",
        )
    last = [f"{name} {value:g}" for name, value in final_values(metrics, form).items()]
    return passed("numbers", f"finite; at the end {few(last)}")


def final_values(metrics: Metrics | None, form: ResultsForm) -> dict[str, float]:
    """Return the numbers of the last epoch that the report tells, those that are finite."""
    last = metrics.final if metrics else {}
    names = last if form.final is None else form.final
    return {name: last[name] for name in names if math.isfinite(last.get(name, math.nan))}


def check_losses(metrics: Metrics | None, log: Log | None) -> Check:
    """Check that metrics.csv says of each epoch what rank 0 printed, to the last digit that it printed."""
    if not metrics or not metrics.epochs.count:
        return not_proven("losses", NO_EPOCH if metrics else NO_METRICS)
    losses = metrics.losses
    if log is None or not log.epochs:
        where = "found no log of rank 0" if log is None else f"{log.name} has no line for an epoch"
        return not_proven("losses", where, PRINT_LOSS)
    if losses.different:
        advice = "one of the two is of another run, or was changed after it: run the job again"
        return failed("losses", Cause.LOSS_DIFFERS, losses.different, advice)
    if log.dropped:
        evidence = f"{log.name} has more lines of epochs than are kept: {losses.compared} numbers agree with it"
        return not_proven("losses", evidence, "have rank 0 print one line for each epoch")
    incomplete = _contradicted(log) or _other_epochs(metrics, log)
    if incomplete:
        return incomplete
    if losses.unsaid:
        evidence = f"{log.name} has no number of {METRICS} in its line for epoch {few(losses.unsaid)}"
        return not_proven("losses", evidence, PRINT_LOSS)
    if losses.uneven:
        evidence = f"{log.name} has numbers of other columns in its line for epoch {few(losses.uneven)} than before"
        return not_proven("losses", evidence, "have rank 0 print the same numbers for each epoch")
    evidence = f"{losses.compared} numbers of {metrics.epochs.count} epochs agree with {log.name}"
    return passed("losses", evidence)


def _contradicted(log: Log) -> Check | None:
    if log.contradicted is None:
        return None
    evidence = f"{log.name} says two different things of epoch {log.contradicted}"
    if sum(isinstance(line, RankStart) and line.rank == 0 for line in log.rank_lines) > 1:
        return not_proven("losses", evidence, "give each training a log of its own")
    return failed("losses", Cause.LOSS_DIFFERS, evidence, "did two processes take rank 0?")


def _other_epochs(metrics: Metrics, log: Log) -> Check | None:
    only_here = metrics.losses.silent
    only_there = [epoch for epoch in log.epochs if epoch and epoch not in metrics.epochs]
    if not only_here and not only_there:
        return None
    evidence = f"{log.name} has no line for epoch {few(only_here)}, which {METRICS} has"
    if not only_here:
        evidence = f"{METRICS} has no line for epoch {few(only_there)}, which {log.name} has"
    elif max(only_here) < min(log.epochs):
        advice = "compare them with the log before: a run that was resumed leaves lines there"
        return not_proven("losses", evidence, advice)
    return failed("losses", Cause.LOSS_DIFFERS, evidence, "is one of them that of another run?")


def asked_epochs(runs: Sequence[RankRun], log: Log | None) -> int | None:
    """Return how many epochs the ranks were asked for: as start lines say, or else as rank 0 counts."""
    said = [run.start.epochs for run in runs if run.start.epochs is not None]
    return max(said, default=log.asked if log else None)
