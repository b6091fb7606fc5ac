"""Find the collective in which ranks wait, and the rank that did not come to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from srunbook.explain._flight import Collective, Dump

WORLD = "default_pg"
"""The process group of all ranks."""

MOST_RANKS = 8
"""Ranks that a sentence names."""


@dataclass(frozen=True)
class Hang:
    """A collective in which ranks wait.

    Args:
        group: The process group.
        collective: The collective, as the ranks that wait in it see it.
        waiting: Ranks that came to it and have not left it.
        absent: Ranks that did not come to it, each with the last one that it came to, or None without any.
        others: Ranks that made another collective in its place.
        unheard: Ranks of the group without a dump.
    """

    group: str
    collective: Collective
    waiting: tuple[int, ...]
    absent: Mapping[int, Collective | None] = field(default_factory=dict)
    others: Mapping[int, Collective] = field(default_factory=dict)
    unheard: tuple[int, ...] = ()

    def sentences(self, hosts: Mapping[int, str]) -> Iterator[str]:
        """Yield what happened, as people say it; who did not come is named first.

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
            made = "made none before" if last is None else f"came last to {last}"
            still = ", and still waits in it" if last and not last.done else ""
            yield f"Rank {rank} {made}{still}."
        for rank, other in [*self.others.items()][:MOST_RANKS]:
            yield f"Rank {rank} made {other}; the others made {self.collective} ({self.group})."
        if self.waiting and (self.absent or self.others):
            yield f"{_ranks(self.waiting, {})} wait{'s' if len(self.waiting) == 1 else ''} in it."
        if self.unheard and (self.absent or self.others):
            yield f"{_ranks(self.unheard, hosts)} left no dump."

    def told(self) -> dict[str, Any]:
        """Return the same for programs."""
        return {
            "group": self.group,
            "collective": _told(self.collective),
            "waiting": [*self.waiting],
            "absent": [{"rank": rank, "last": last and _told(last)} for rank, last in self.absent.items()],
            "others": [{"rank": rank, "made": _told(other)} for rank, other in self.others.items()],
            "unheard": [*self.unheard],
        }


def find_hangs(dumps: Mapping[int, Dump]) -> tuple[Hang, ...]:
    """Return where ranks wait, one collective of each process group, that which began first at the front.

    Args:
        dumps: The dumps by rank.
    """
    groups = dict.fromkeys(group for dump in dumps.values() for group in dump.groups)
    found = [hang for group in groups if (hang := _hang(group, dumps))]
    return tuple(sorted(found, key=lambda hang: hang.collective.created))


def _hang(group: str, dumps: Mapping[int, Dump]) -> Hang | None:
    made = {rank: dump.groups.get(group, {}) for rank, dump in dumps.items() if group in dump.groups or group == WORLD}
    pending = {one.number: one for own in made.values() for one in own.values() if not one.done}
    if not pending:
        return None
    unheard = tuple(sorted(_named(dumps) - {*dumps})) if group == WORLD else ()
    number = _differing(made)
    if number is not None:
        under = {rank: own[number] for rank, own in made.items() if number in own}
        usual = Counter(one.kind for one in under.values()).most_common(1)[0][0]
        others = {rank: one for rank, one in under.items() if one.kind != usual}
        most = {rank: one for rank, one in under.items() if one.kind == usual}
        waiting = tuple(rank for rank, one in most.items() if not one.done)
        return Hang(group, next(iter(most.values())), waiting, others=others, unheard=unheard)
    last = {rank: max(own, default=0) for rank, own in made.items()}
    fewest = min(last.values())
    missed = pending[min((place for place in pending if place > fewest), default=min(pending))]
    absent = {rank: own.get(last[rank]) for rank, own in made.items() if last[rank] < missed.number}
    waiting = tuple(rank for rank, own in made.items() if missed.number in own and not own[missed.number].done)
    return Hang(group, missed, waiting, absent, unheard=unheard)


def _differing(made: Mapping[int, Mapping[int, Collective]]) -> int | None:
    """Return the first number under which ranks made different collectives."""
    for number in sorted({number for own in made.values() for number in own}):
        if len({own[number].kind for own in made.values() if number in own}) > 1:
            return number
    return None


def _named(dumps: Mapping[int, Dump]) -> set[int]:
    """Return the ranks that there must be."""
    return {rank for dump in dumps.values() for rank in dump.named} | {*range(max(dumps, default=-1) + 1)}


def _ranks(ranks: Iterable[int], hosts: Mapping[int, str]) -> str:
    """Return ranks as the beginning of a sentence.

    >>> _ranks([0, 1, 3], {3: "node4"}), _ranks(range(64), {})
    ('Ranks 0, 1 and 3 on node4', 'Ranks 0, 1, 2, 3, 4, 5, 6, 7 and 56 others')
    """
    every = [*ranks]
    names = [f"{rank} on {hosts[rank]}" if rank in hosts else str(rank) for rank in every]
    if len(names) == 1:
        return f"Rank {names[0]}"
    if len(names) > MOST_RANKS:
        names = [*names[:MOST_RANKS], f"{len(names) - MOST_RANKS} other{'s' if len(names) > MOST_RANKS + 1 else ''}"]
    return f"Ranks {', '.join(names[:-1])} and {names[-1]}"


def _told(collective: Collective) -> dict[str, Any]:
    sizes = [[*shape] for shape in collective.sizes]
    return {"number": collective.number, "name": collective.name, "sizes": sizes}
