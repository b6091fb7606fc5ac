"""The results of SVGD, its errors and its warnings."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.floating[Any]]
"""Numbers in the type of the particles: float32, or float64 with JAX_ENABLE_X64=1."""

SLOW = 1.5
"""A process is called slow when its scores take so many times as long as the median process's: of two, the faster's."""


class SVGDError(RuntimeError):
    """Log densities, scores or directions are not finite, or the processes were not given the same."""


class DimensionWarning(UserWarning):
    """There are too few particles for so many dimensions: the variance will come out too small."""


class PrecisionWarning(UserWarning):
    """The kernel is so narrow against the spread of the particles that rounding changes their directions."""


@dataclass(frozen=True)
class Direction:
    """The direction in which particles would move now.

    Args:
        phi: The direction, shape (n, d).
        bandwidth: The bandwidth h of the kernel, a squared length.
    """

    phi: Floats
    bandwidth: float


@dataclass(frozen=True)
class Holding:
    """What one device holds.

    Args:
        process_id: Number of its process.
        device: Its name, as `cpu:0`, which is the same for all processes.
        particles: Numbers of its particles, as `range(0, 25)`.
    """

    process_id: int
    device: str
    particles: range


@dataclass(frozen=True)
class ProcessTiming:
    """How long one process takes for the scores of its particles.

    Args:
        process_id: Number of the process.
        host: Name of its node.
        score_seconds: One sample for each report, in seconds, without waiting for others.
    """

    process_id: int
    host: str
    score_seconds: tuple[float, ...]


@dataclass(frozen=True)
class SVGDResult:
    """Particles that stand for the distribution, the same on all processes, and how they came there.

    Args:
        particles: The particles, shape (n, d).
        steps: Number of steps that they have made in all, also before a restart.
        first_step: Number of steps that were there before this run: 0, or those of a checkpoint.
        bandwidths: The bandwidth h of each step of this run, a squared length.
        phi_rms: Length of the direction at each step of this run, root mean square over the particles.
        seconds: How long this run took, with compilation, in seconds.
        stopped: Whether a stop signal ended it before its time. The state is saved where `checkpoint` was given.
        timings: Times of each process, where a timing log was asked for.
    """

    particles: Floats
    steps: int
    first_step: int
    bandwidths: Floats
    phi_rms: Floats
    seconds: float
    stopped: bool = False
    timings: tuple[ProcessTiming, ...] = ()

    @property
    def slow_processes(self) -> tuple[ProcessTiming, ...]:
        """Return the processes whose scores take more than 1.5 times as long as those of the median process.

        Of an even number that is the faster of the two in the middle: of two processes, the slower is compared with
        the other, and not with a mean to which it adds itself.
        """
        if len(self.timings) < 2:
            return ()
        medians = [statistics.median(timing.score_seconds) for timing in self.timings]
        limit = SLOW * statistics.median_low(medians)
        return tuple(timing for timing, median in zip(self.timings, medians, strict=True) if median > limit)
