"""Say in few words which ranks and hosts a check means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from srunbook.ranklog import RankStart
from srunbook.slurm import SlurmParseError, compress_hostlist
from srunbook.verify._launches import RankRun

EXAMPLES = {"host": "node1", "backend": "gloo", "steps": "220", "params": "1b66e5a4c16e"}


def few(values: Sequence[object]) -> str:
    """List the first eight values."""
    return ", ".join([*map(str, values[:8]), *(["..."] if values[8:] else [])])


def count(number: int, noun: str) -> str:
    """Return a number with its noun, as in `1 rank` and `2 ranks`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listed(hosts: Sequence[str]) -> str:
    """Return a host list."""
    try:
        return compress_hostlist(hosts)
    except SlurmParseError:
        return ",".join(hosts)


def places(runs: Iterable[RankRun]) -> str:
    """Say where the first four ranks ran."""
    ordered = sorted((run.start for run in runs), key=lambda start: (start.rank, start.host or ""))
    return ", ".join([*map(_place, ordered[:4]), *([f"and {len(ordered) - 4} more"] if ordered[4:] else [])])


def _place(start: RankStart) -> str:
    process = "" if start.pid is None else f" is pid {start.pid}"
    return f"rank {start.rank}{process}{'' if start.host is None else f' on {start.host}'}"


def silent(runs: Sequence[RankRun], kind: str, field: str, values: Sequence[object]) -> str:
    """Name the ranks whose line does not say a field; return nothing if all do."""
    ranks = sorted(run.start.rank for run, value in zip(runs, values, strict=True) if value is None)
    if not ranks:
        return ""
    if len(ranks) == len(runs):
        return f"no {kind} line says {field}="
    return f"the {kind} line of rank {few(ranks)} does not say {field}="


def print_it(kind: str, field: str) -> str:
    """Say how a program says a field."""
    return f"have every rank print it, as in: rank 0/2 {kind} {field}={EXAMPLES[field]}"


def short(digest: str) -> str:
    """Return the first digits of a hash."""
    return f"{digest[:12]}..." if len(digest) > 12 else digest
