"""Dumps of PyTorch's flight recorder: the collectives that each rank came to, and the rank that others wait for.

The recorder keeps the last collectives of a rank. A dump is its JSON, of `torch._C._distributed_c10d`'s
`_dump_fr_trace_json()`; it names no rank, so the name of its file has to. Pickles are refused: reading one can run
any program.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from srunbook._files import read_blocks
from srunbook.explain.scan import RANK_OF_NAME, unpack

VERSION = "2.10"
"""The format of PyTorch 2.13."""

BEGINS = re.compile(rb'\s*\{\s*"(?:comm_lib_version|entries|nccl_comm_state|nccl_version|pg_config|pg_status)"\s*:')
PICKLE = re.compile(rb"\x80[\x02-\x05]")

SAME_SIZES = ("all_reduce", "broadcast")
"""Collectives in which the tensors of all ranks have the same size."""

WORLD = "default_pg"
"""The process group of all ranks."""

MOST_RANKS = 8
"""Ranks that a sentence names."""


class DumpError(ValueError):
    """A file is a dump, and cannot be used; the text says why."""


@dataclass(frozen=True)
class Collective:
    """A collective that a rank reached.

    Args:
        number: Its number in its group, from 1.
        name: Backend and operation, such as `gloo:all_reduce`.
        sizes: Shapes of the input tensors.
        done: Whether the rank has left it.
        created: When the rank reached it, in nanoseconds since 1970.
    """

    number: int
    name: str
    sizes: tuple[tuple[int, ...], ...] = ()
    done: bool = True
    created: int = 0

    def __str__(self) -> str:
        """Return it as people name it.

        >>> print(Collective(12, "gloo:all_reduce", ((4, 3),)))
        12, gloo:all_reduce of [4, 3]
        """
        sizes = " and ".join(str([*shape]) for shape in self.sizes)
        return f"{self.number}, {self.name}{f' of {sizes}' if sizes else ''}"

    @property
    def kind(self) -> tuple[object, ...]:
        """Return what it has in common with the same collective on another rank."""
        return (self.name, self.sizes) if self.name.endswith(SAME_SIZES) else (self.name,)


class Dump(NamedTuple):
    """What the recorder of one rank held."""

    name: str  # of the file
    rank: int
    groups: Mapping[str, Mapping[int, Collective]]  # the collectives of each process group by number
    named: frozenset[int]  # ranks that its groups name
    version: str


def read_dump(path: Path) -> Dump | None:
    """Read a dump, which may be gzipped; return None for a file that is no dump.

    Raises:
        DumpError: It is one, and cannot be used.
        OSError: The file cannot be read.
    """
    blocks = unpack(read_blocks(path), [])
    first = next(blocks, b"")
    if PICKLE.match(first):
        raise DumpError(
            "a pickle, which can run any program when it is read: dump JSON as the page says, or ask torchfrtrace"
        )
    if not BEGINS.match(first):
        return None
    named = RANK_OF_NAME.search(path.name)
    if not named:
        raise DumpError("a dump whose name tells no rank: call it rank_3.json if rank 3 wrote it")
    try:
        return _parsed(json.loads(first + b"".join(blocks)), path.name, int(named[1]))
    except (KeyError, TypeError, ValueError, AttributeError):
        problem = f"the dump is cut off, damaged, or not of version {VERSION}, that of PyTorch 2.13"
        raise DumpError(f"{problem}: nothing in it was read") from None


def _parsed(trace: dict[str, Any], name: str, rank: int) -> Dump:
    groups: dict[str, dict[int, Collective]] = {}
    for entry in trace.get("entries", []):
        if not entry.get("is_p2p"):
            number, description = entry["process_group"]
            group = description if description not in ("", "undefined") else f"group {number}"
            sizes = tuple(tuple(map(int, shape)) for shape in entry["input_sizes"])
            # gloo leaves the state at `scheduled`, and retires what is done; NCCL does both.
            done = bool(entry["retired"]) or entry["state"] == "completed"
            collective = Collective(
                int(entry["collective_seq_id"]), entry["profiling_name"], sizes, done, int(entry["time_created_ns"])
            )
            groups.setdefault(group, {})[collective.number] = collective
    ranks = frozenset(
        int(member) for group in trace.get("pg_config", {}).values() for member in json.loads(group["ranks"])
    )
    return Dump(name, rank, groups, ranks, str(trace.get("version")))


@dataclass(frozen=True)
class Hang:
    """A collective in which ranks wait.

    Args:
        group: The process group.
        collective: The collective, as the ranks that wait in it see it.
        waiting: Ranks that reached it and have not left it.
        absent: Ranks that did not reach it, each with the last collective that it reached, or None.
        others: Ranks that called a different collective instead.
        unheard: Ranks in the group without a dump.
    """

    group: str
    collective: Collective
    waiting: tuple[int, ...]
    absent: Mapping[int, Collective | None] = field(default_factory=dict)
    others: Mapping[int, Collective] = field(default_factory=dict)
    unheard: tuple[int, ...] = ()

    def sentences(self, hosts: Mapping[int, str]) -> Iterator[str]:
        """Yield sentences about what happened, first about the ranks that did not come.

        Args:
            hosts: Nodes by rank, as far as they are known.
        """
        missed = f"collective {self.collective} ({self.group})"
        if self.absent:
            yield f"{_ranks(self.absent, hosts)} did not come to {missed}."
        elif self.others:
            yield f"{_ranks(self.others, hosts)} made another collective than the other ranks."
        elif self.unheard:
            yield f"{_ranks(self.unheard, hosts)} left no dump, and the others wait in {missed}."
        else:
            yield f"Every rank that is known waits in {missed}: suspect the network between the nodes."
        for rank, last in [*self.absent.items()][:MOST_RANKS]:
            came = "made none before" if last is None else f"came last to {last}"
            still = ", and still waits in it" if last and not last.done else ""
            yield f"Rank {rank} {came}{still}."
        for rank, other in [*self.others.items()][:MOST_RANKS]:
            yield f"Rank {rank} made {other}; the others made {self.collective} ({self.group})."
        if self.waiting and (self.absent or self.others):
            yield f"{_ranks(self.waiting, {})} wait{'s' if len(self.waiting) == 1 else ''} in it."
        if self.unheard and (self.absent or self.others):
            yield f"{_ranks(self.unheard, hosts)} left no dump."


def find_hangs(dumps: Mapping[int, Dump]) -> tuple[Hang, ...]:
    """Return where ranks wait by their dumps: one collective of each process group, the earliest at the front."""
    groups = dict.fromkeys(group for dump in dumps.values() for group in dump.groups)
    hangs = [hang for group in groups if (hang := _hang(group, dumps))]
    return tuple(sorted(hangs, key=lambda hang: hang.collective.created))


def _hang(group: str, dumps: Mapping[int, Dump]) -> Hang | None:
    by_rank = {
        rank: dump.groups.get(group, {}) for rank, dump in dumps.items() if group in dump.groups or group == WORLD
    }
    pending = {
        collective.number: collective
        for collectives in by_rank.values()
        for collective in collectives.values()
        if not collective.done
    }
    if not pending:
        return None
    named = {rank for dump in dumps.values() for rank in dump.named} | {*range(max(dumps) + 1)}
    unheard = tuple(sorted(named - {*dumps})) if group == WORLD else ()
    for number in sorted({number for collectives in by_rank.values() for number in collectives}):
        under = {rank: collectives[number] for rank, collectives in by_rank.items() if number in collectives}
        usual = Counter(collective.kind for collective in under.values()).most_common(1)[0][0]
        others = {rank: collective for rank, collective in under.items() if collective.kind != usual}
        if others:
            most = {rank: collective for rank, collective in under.items() if collective.kind == usual}
            waiting = tuple(rank for rank, collective in most.items() if not collective.done)
            return Hang(group, next(iter(most.values())), waiting, others=others, unheard=unheard)
    last = {rank: max(collectives, default=0) for rank, collectives in by_rank.items()}
    fewest = min(last.values())
    missed = pending[min((place for place in pending if place > fewest), default=min(pending))]
    absent = {rank: collectives.get(last[rank]) for rank, collectives in by_rank.items() if last[rank] < missed.number}
    waiting = tuple(
        rank
        for rank, collectives in by_rank.items()
        if missed.number in collectives and not collectives[missed.number].done
    )
    return Hang(group, missed, waiting, absent, unheard=unheard)


def _ranks(ranks: Iterable[int], hosts: Mapping[int, str]) -> str:
    """Return ranks as the beginning of a sentence.

    >>> _ranks([0, 1, 3], {3: "node4"}), _ranks(range(64), {})
    ('Ranks 0, 1 and 3 on node4', 'Ranks 0, 1, 2, 3, 4, 5, 6, 7 and 56 others')
    """
    names = [f"{rank} on {hosts[rank]}" if rank in hosts else str(rank) for rank in ranks]
    if len(names) == 1:
        return f"Rank {names[0]}"
    if len(names) > MOST_RANKS:
        names = [*names[:MOST_RANKS], f"{len(names) - MOST_RANKS} other{'s' if len(names) > MOST_RANKS + 1 else ''}"]
    return f"Ranks {', '.join(names[:-1])} and {names[-1]}"
