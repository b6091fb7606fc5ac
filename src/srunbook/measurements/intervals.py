"""Medians with intervals that assume nothing about how the samples are distributed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A median, or a ratio of two, with its confidence interval.

    Args:
        value: The median, or the ratio.
        low: Lower end.
        high: Upper end.
        confidence: Probability, at least, with which such an interval holds the true value.
    """

    value: float
    low: float
    high: float
    confidence: float

    def times(self, factor: float) -> Interval:
        """Return the interval of the value multiplied by a factor above 0.

        >>> Interval(2.0, 1.0, 3.0, 0.95).times(2.0)
        Interval(value=4.0, low=2.0, high=6.0, confidence=0.95)
        """
        return Interval(self.value * factor, self.low * factor, self.high * factor, self.confidence)


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> Interval:
    """Return the median with a nonparametric confidence interval.

    Of n sorted samples, the true median lies between the k-th smallest and the k-th largest with a probability that
    follows from the binomial distribution alone: 1 - 2 P(fewer than k of n coins show heads). The largest k that
    reaches the confidence is taken. If no k does, the interval spans all samples, and its confidence is what that
    gives. Source: T. Hoefler and R. Belli, Scientific Benchmarking of Parallel Computing Systems, SC 2015, section
    3.1.3, after J.-Y. Le Boudec, Performance Evaluation of Computer and Communication Systems, 2010.

    Args:
        samples: Independent samples, at least one.
        confidence: The confidence to reach, above 0 and below 1.

    Raises:
        ValueError: There are no samples, or the confidence lies outside (0, 1).

    >>> median_interval([3.0, 1.0, 2.0, 5.0, 4.0, 6.0])
    Interval(value=3.5, low=1.0, high=6.0, confidence=0.96875)
    """
    if not samples:
        raise ValueError("no samples have no median; give at least one, as in [1.0, 1.1, 1.2]")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; it lies between 0 and 1, as 0.95 does")
    ordered = sorted(samples)
    count = len(ordered)

    def coverage(outside: int) -> float:
        return float(max(0.0, 1.0 - 2.0 * (outside / 2**count)))

    k, outside = 1, 1  # outside / 2^n: probability that fewer than k of n coins show heads
    while k < count - k and coverage(outside + math.comb(count, k)) >= confidence:
        outside += math.comb(count, k)
        k += 1
    return Interval(statistics.median(ordered), ordered[k - 1], ordered[count - k], coverage(outside))


def ratio_interval(over: Sequence[float], under: Sequence[float], confidence: float = 0.95) -> Interval:
    """Return the ratio of two medians of positive samples with its confidence interval.

    Each median gets an interval that misses with at most half of the allowed probability. Both hold at once with the
    whole confidence (Bonferroni), and then the ratio lies between the extreme quotients of their ends. That is wider
    than needed, but it holds for any distribution and for series that depend on each other, and it draws no random
    numbers: the same samples give the same interval.

    Args:
        over: Samples of the numerator.
        under: Samples of the denominator.
        confidence: The confidence to reach.

    Raises:
        ValueError: A sample is zero or negative, there are none, or the confidence lies outside (0, 1).

    >>> ratio = ratio_interval([4.0] * 10, [2.0] * 10)
    >>> ratio.value, ratio.low, ratio.high, round(ratio.confidence, 3)
    (2.0, 2.0, 2.0, 0.957)
    """
    if min(*over, *under, 1.0) <= 0:
        raise ValueError(f"{min(*over, *under)} is no time; a ratio is formed of samples above 0")
    each = 1.0 - (1.0 - confidence) / 2.0
    top, bottom = median_interval(over, each), median_interval(under, each)
    both = max(0.0, top.confidence + bottom.confidence - 1.0)
    return Interval(top.value / bottom.value, top.low / bottom.high, top.high / bottom.low, both)
