"""What SVGD returns, its errors and its warnings."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.floating[Any]]
"""Numbers in the type of the particles: float32, or float64 with JAX_ENABLE_X64=1."""


class SVGDError(RuntimeError):
    """A number is not finite, the processes got different arguments, or a checkpoint does not match."""


class DimensionWarning(UserWarning):
    """There are too few particles for so many dimensions, so the variance will be too small."""


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
        device: Its name, such as `cpu:0`, the same for all processes.
        particles: Numbers of its particles, such as `range(0, 25)`.
    """

    process_id: int
    device: str
    particles: range


@dataclass(frozen=True)
class ProcessTiming:
    """How long one process takes to compute the scores of its particles.

    Args:
        process_id: Number of the process.
        host: Name of its node.
        score_seconds: One sample for each report, in seconds, without waiting for other processes.
    """

    process_id: int
    host: str
    score_seconds: tuple[float, ...]


@dataclass(frozen=True)
class SVGDResult:
    """The particles, the same on all processes, and how the run went.

    Args:
        particles: The particles, shape (n, d).
        steps: Total number of steps, including the steps before a restart.
        first_step: Number of steps that a checkpoint already had, or 0.
        bandwidths: The bandwidth h at each step of this run, a squared length.
        phi_rms: Length of the direction at each step of this run, root mean square over the particles.
        seconds: How long this run took, with compilation, in seconds.
        stopped: Whether a stop signal ended the run early. The state is saved if `checkpoint` was given.
        timings: Times of each process, if a timing log was requested.
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
        """Return the processes whose scores take more than 1.5 times as long as the median process's scores.

        If two processes are in the middle, the faster one counts: with two processes, the slower is compared with the
        faster.
        """
        medians = [statistics.median(timing.score_seconds) for timing in self.timings]
        limit = 1.5 * statistics.median_low(medians or [0.0])
        return tuple(timing for timing, median in zip(self.timings, medians, strict=True) if median > limit)
