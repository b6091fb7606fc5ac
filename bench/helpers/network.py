"""Model the network: a bound for the bytes that must move, and the step that follows from each bucket."""

from __future__ import annotations

from collections.abc import Sequence


def ring_bytes(size: float, ranks: int) -> float:
    """Return the bytes that each rank has to send in an all-reduce, and as many that it has to receive.

    2 (N - 1) / N times the size: N - 1 of N parts go out to be summed, and as many to spread the sums. No algorithm
    without help from the network sends less. Source: P. Patarasu and X. Yuan, Bandwidth optimal all-reduce
    algorithms for clusters of workstations, JPDC 69(2), 2009.

    Args:
        size: Bytes of what is reduced; of DDP, the bytes of all gradients.
        ranks: Number of ranks, each on a link of its own.

    >>> ring_bytes(8e6, 4)
    12000000.0
    """
    return 2.0 * (ranks - 1) / ranks * size


def link_bound(size: float, ranks: int, bits_per_second: float) -> float:
    """Return the seconds that an all-reduce over such links takes at least.

    8 `ring_bytes(size, ranks)` / `bits_per_second`: every rank sends over its own link all the time.

    Args:
        size: Bytes of what is reduced.
        ranks: Number of ranks, each on a link of its own.
        bits_per_second: Rate of each link in each direction, in bit/s.

    >>> link_bound(8e6, 4, 100e6)
    0.96
    """
    return 8.0 * ring_bytes(size, ranks) / bits_per_second


def bucket_ends(ready: Sequence[float], all_reduce: Sequence[float]) -> list[float]:
    """Return when the all-reduce of each bucket ends, in seconds from the start of the step.

    DDP reduces its buckets one after the other: each begins when its gradients are ready and the one before has
    ended. So `end_b = max(ready_b, end_{b-1}) + AR(S_b)`.

    Args:
        ready: When the gradients of each bucket are ready, in seconds from the start of the step, in the order in
            which they are reduced.
        all_reduce: Seconds that the all-reduce of each bucket takes by itself.

    >>> bucket_ends([1.0, 2.0], [3.0, 1.0])
    [4.0, 5.0]
    """
    ends: list[float] = []
    for begin, takes in zip(ready, all_reduce, strict=True):
        ends.append(max(begin, ends[-1] if ends else 0.0) + takes)
    return ends


def predict_step(alone: float, ready: Sequence[float], all_reduce: Sequence[float]) -> float:
    """Return the seconds of a step whose all-reduces run beside its backward pass: `max(T1, end_last)`.

    The model leaves out what follows the last all-reduce, such as the optimizer, which is small here. It holds while
    the link is the limit: where ranks share processors, or summing costs more than sending, steps take longer.

    Args:
        alone: T1, seconds of the same step on one rank, without any all-reduce.
        ready: As for `bucket_ends`.
        all_reduce: As for `bucket_ends`.

    >>> predict_step(2.5, [1.0, 2.0], [3.0, 1.0])
    5.0
    >>> predict_step(2.5, [1.0, 2.0], [0.1, 0.1])
    2.5
    """
    return max([alone, *bucket_ends(ready, all_reduce)[-1:]])
