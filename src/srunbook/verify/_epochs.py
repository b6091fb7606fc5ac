"""Remember which epochs a table holds, in a byte each and only where they do not come as 1, 2, 3."""

from __future__ import annotations

from dataclasses import dataclass, field

LARGEST = 2**24
"""Epochs up to this number are told apart; of any beyond, only the largest is kept."""

SHOWN = 9
"""Numbers that a message may need: eight, and one that says there are more."""


@dataclass
class Epochs:
    """The numbers of the epochs of a table.

    Args:
        count: How many lines there are.
        last: The largest number.
        first: The first numbers.
        ascending: Whether each is larger than the one before it.
        twice: The first numbers that came again.
    """

    count: int = 0
    last: int = 0
    first: list[int] = field(default_factory=list)
    ascending: bool = True
    twice: list[int] = field(default_factory=list)
    _previous: int = -1
    _seen: bytearray | None = None

    def add(self, number: int) -> None:
        """Take the number of the next line."""
        if self._seen is None and number != self.count + 1:
            self._seen = bytearray(1) + b"\1" * min(self.count, LARGEST)
        if self._seen is not None and number <= LARGEST:
            if number >= len(self._seen):
                self._seen.extend(bytes(min(2 * number, LARGEST) + 1 - len(self._seen)))
            if self._seen[number] and len(self.twice) < SHOWN and number not in self.twice:
                self.twice.append(number)
            self._seen[number] = 1
        if self.count < SHOWN:
            self.first.append(number)
        self.count += 1
        self.last = max(self.last, number)
        self.ascending = self.ascending and number > self._previous
        self._previous = number

    def __contains__(self, number: int) -> bool:
        if self._seen is None:
            return 1 <= number <= self.count
        return 0 <= number < len(self._seen) and bool(self._seen[number])

    def missing(self, last: int) -> list[int]:
        """Return the first numbers from 1 to `last` that are not there."""
        found: list[int] = []
        for number in range(self.count + 1 if self._seen is None else 1, min(last, LARGEST) + 1):
            if number not in self:
                found.append(number)
                if len(found) == SHOWN:
                    break
        return found
