"""Say what a folder of results should hold."""

from __future__ import annotations

from dataclasses import dataclass

METRICS = "metrics.csv"
"""The file with one line for each epoch."""


@dataclass(frozen=True)
class ResultsForm:
    """What a folder of results should hold. Without arguments, the folder and its metrics.csv say so themselves.

    Args:
        required: Names of files that have to be there and not be empty.
        columns: Columns of metrics.csv, in order; by default those of its own header, which begins with `epoch`.
        may_be_empty: Columns whose cells may be empty; by default those without a single value.
        final: Columns whose value in the last epoch is reported; by default all.
    """

    required: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    may_be_empty: tuple[str, ...] | None = None
    final: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Reject columns without the epoch, by which everything else is told.

        Raises:
            ValueError: `columns` does not hold `epoch`.
        """
        if self.columns is not None and "epoch" not in self.columns:
            raise ValueError(f"columns are {', '.join(self.columns)}; one of them has to be 'epoch'")
