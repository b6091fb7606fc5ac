"""The result of a simulation: how each task ended and what it printed."""

from __future__ import annotations

import signal as signals
from dataclasses import dataclass

TIMED_OUT = 124
"""Exit status of a simulation that ran out of time, as that of timeout(1)."""

INTERRUPTED = 130
"""Exit status after Ctrl-C."""


@dataclass(frozen=True)
class RankResult:
    """How one task ended.

    Args:
        rank: Its rank, from 0.
        node: Name of its node.
        returncode: Its exit status, or 128 and the number of the signal that ended it.
        signal: Number of that signal, or None.
        killed: Whether the simulation killed it, because another task failed or time was up.
        seconds: How long it ran, in seconds.
        lines: What it printed: each line with the name of its stream, `stdout` or `stderr`. Where only the last ones
            were kept, a line of more than 65,536 characters is several.
    """

    rank: int
    node: str
    returncode: int
    signal: int | None
    killed: bool
    seconds: float
    lines: tuple[tuple[str, str], ...]

    @property
    def output(self) -> str:
        """What it printed on both streams, in the order of arrival."""
        return "\n".join(line for _, line in self.lines)

    @property
    def stdout(self) -> str:
        """What it printed on standard output."""
        return "\n".join(line for stream, line in self.lines if stream == "stdout")

    @property
    def stderr(self) -> str:
        """What it printed on standard error."""
        return "\n".join(line for stream, line in self.lines if stream == "stderr")

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        if self.signal is None:
            return f"exited with status {self.returncode}"
        try:
            name = signals.Signals(self.signal).name
        except ValueError:
            name = "an unnamed signal"
        return f"was ended by signal {self.signal} ({name})"


@dataclass(frozen=True)
class Result:
    """How all tasks ended.

    Args:
        returncode: Exit status of the simulation, as `exit_status` makes it.
        ranks: The tasks in the order of their ranks.
        first_failure: The task that failed first by itself, or None.
        timed_out: Whether time was up.
        timeout: The time limit in seconds, or None.
        job_id: The simulated job's id.
        notices: What was found before the start that may go wrong later.
        label: Whether `output` names the rank of each line.
    """

    returncode: int
    ranks: tuple[RankResult, ...]
    first_failure: RankResult | None
    timed_out: bool
    timeout: float | None
    job_id: int
    notices: tuple[str, ...] = ()
    label: bool = True

    @property
    def output(self) -> str:
        """What all tasks printed, one rank after the other."""
        return "\n".join(
            f"[{rank.rank}] {line}" if self.label else line for rank in self.ranks for _, line in rank.lines
        )

    @property
    def failure(self) -> str:
        """What went wrong, with the last lines of the task that failed first. Empty after success."""
        if self.returncode == 0:
            return ""
        if self.first_failure:
            first = self.first_failure
            text = f"rank {first.rank} on {first.node} {first.ending} after {first.seconds:.1f} s"
            others = sum(rank.killed for rank in self.ranks)
            text += f"; {others} other{'s were' if others > 1 else ' was'} killed" if others else ""
        else:
            text = ""
        if self.timed_out:
            running = [str(rank.rank) for rank in self.ranks if rank.killed]
            late = f"not finished after {self.timeout:g} s, killed: rank {', '.join(running)}"
            text = f"{text}; {late}" if text else late
        blamed = self.first_failure or next((rank for rank in self.ranks if rank.killed), None)
        if blamed and blamed.lines:
            last = "\n".join(f"[{blamed.rank}] {_clipped(line)}" for _, line in blamed.lines[-LAST_LINES:])
            text += f"\nlast lines of rank {blamed.rank}:\n{last}"
        return "\n".join([text, *self.notices])


LAST_LINES = 20
"""How many lines of a failed rank are shown again."""

LAST_CHARACTERS = 2000
"""How much of each of these lines is shown."""


def _clipped(line: str) -> str:
    return line if len(line) <= LAST_CHARACTERS else f"{line[:LAST_CHARACTERS]} ... ({len(line)} characters)"


def exit_status(ranks: tuple[RankResult, ...], *, timed_out: bool) -> int:
    """Return the exit status of the simulation, made as srun makes it from the tasks that ended by themselves.

    A task ended by signal N counts as 128+N, and takes precedence over any exit status; otherwise the highest exit
    status is returned. After a timeout it is 124. Tasks that the simulation killed do not count.
    """
    if timed_out:
        return TIMED_OUT
    ended = [rank for rank in ranks if not rank.killed]
    signalled = [rank.returncode for rank in ended if rank.signal is not None]
    return max(signalled or [rank.returncode for rank in ended], default=0)
