"""One run: the compiled loop in pieces, with reports, checkpoints and stops between them."""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-call"
import hashlib
import json
import os
import socket
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec as Spec

from srunbook.checkpoint import CheckpointError, Checkpoints
from srunbook.svgd._identity import agree, densities, differences, identity
from srunbook.svgd._kernel import warn_of_rounding
from srunbook.svgd._result import Floats, ProcessTiming, SVGDError, SVGDResult

if TYPE_CHECKING:
    from srunbook.checkpoint import StopSignal
    from srunbook.svgd._sampler import SVGD


class Run:
    """One call of `SVGD.run`.

    Args:
        sampler: The settings.
        key: The random key.
        start: The particles to start from, shape (n, d).
        n_steps: Number of steps in all.
        every: Steps between two reports.
        checkpoint: Directory of checkpoints, or None.
        stop: The stop signal, or None.
        timing_log: File for the times of the processes, or None.
        progress: Whether process 0 prints a line at every report; what the others are given does not matter.
    """

    def __init__(
        self,
        sampler: SVGD,
        key: Array,
        start: Floats,
        n_steps: int,
        every: int,
        checkpoint: str | os.PathLike[str] | None,
        stop: StopSignal | None,
        timing_log: str | os.PathLike[str] | None,
        *,
        progress: bool,
    ) -> None:
        self.began = time.perf_counter()
        self.sampler = sampler
        self.key = key
        self.n_steps = n_steps
        self.stop = stop
        self.layout = sampler._layout(len(start))
        settings = {
            "n_steps": n_steps,
            "every": every,
            "checkpoint": "none" if checkpoint is None else "a directory",
            "stop": "none" if stop is None else "a signal",
            "timing_log": "none" if timing_log is None else "a file",
            "kernel": sampler.kernel,
            "exchange": sampler.exchange,
            "batch_size": sampler.target.batch_size,
            "bandwidth": "a function" if callable(sampler.bandwidth) else sampler.bandwidth,
        }
        self.progress = self._agreed(start, settings, progress=progress)
        self.every = every if self.progress or checkpoint or stop or timing_log else None
        self.checkpoints = _checkpoints(checkpoint) if checkpoint else None
        self.clock = _Clock(sampler, Path(timing_log)) if timing_log else None
        self.step = 0
        self.state = self._place(start, None)
        if self.checkpoints:
            self.identity = identity(sampler, start)
            self._restore(self.checkpoints)

    def go(self) -> SVGDResult:
        """Computes until there are so many steps, or a signal stops it."""
        first, reports, stopped, n_steps = self.step, 0, False, self.n_steps
        traces: list[tuple[Floats, Floats]] = []
        pairs = self.sampler._pairs(self.key, self.layout.n)
        while self.step < n_steps and not stopped:
            length = n_steps - self.step
            if self.every is not None:
                length = min(length, self.every - self.step % self.every)
            before = time.perf_counter()
            traces.append(self._advance(length, pairs))
            reports += 1
            if self.clock:
                self.clock.take(self.step, self.state[0])
            if self.progress and jax.process_index() == 0:
                self._say(n_steps, traces[-1], (time.perf_counter() - before) / length)
            if self.stop is not None:
                stopped = self.stop.requested(reports)
            if self.checkpoints:
                self._save(self.checkpoints)
        empty = np.zeros(0, self.state[0].dtype)
        particles = self.sampler._gathered(self.state[0])[: self.layout.n]
        if traces and self.sampler.kernel == "rbf":
            warn_of_rounding(particles, float(traces[-1][0][-1]), stacklevel=4)
        return SVGDResult(
            particles=particles,
            steps=self.step,
            first_step=first,
            bandwidths=np.concatenate([empty, *(trace[0] for trace in traces)]),
            phi_rms=np.concatenate([empty, *(trace[1] for trace in traces)]),
            seconds=time.perf_counter() - self.began,
            stopped=stopped,
            timings=self.clock.timings() if self.clock else (),
        )

    def _advance(self, length: int, pairs: np.ndarray[Any, Any]) -> tuple[Floats, Floats]:
        program = self.sampler._program(self.layout, length)
        batch_key = jax.random.fold_in(self.key, 2)
        self.state, trace = program(self.state, np.int32(self.step), self.sampler._data, pairs, batch_key)
        bandwidths, phi_rms, wrong = (self.sampler._gathered(array) for array in trace)
        impossible = (wrong > 0) | ~np.isfinite(phi_rms) | ~(bandwidths > 0)
        if impossible.any():
            at = int(np.argmax(impossible))
            if not wrong[at] and callable(self.sampler.bandwidth) and not bandwidths[at] > 0:
                raise SVGDError(
                    f"step {self.step + at + 1}: bandwidth(particles) is {bandwidths[at]}; it is a squared length, "
                    "larger than 0, as in lambda x: jnp.var(x)"
                )
            what = f"the score of {int(wrong[at])} of {self.layout.n} particles" if wrong[at] else "the direction"
            raise SVGDError(
                f"step {self.step + at + 1}: {what} is not finite. Is the log density finite wherever particles go, or "
                "are the steps too long? For positive parameters let the particles be their logarithms; or use a "
                "smaller step, as in optimizer=optax.adam(0.01)"
            )
        self.step += length
        return bandwidths, phi_rms

    def _say(self, n_steps: int, trace: tuple[Floats, Floats], seconds: float) -> None:
        line = f"step {self.step} of {n_steps}: direction {trace[1][-1]:.3g}, bandwidth {trace[0][-1]:.3g}, "
        sys.stdout.write(f"{line}{_duration(seconds)} a step\n")
        sys.stdout.flush()

    # The state: particles and the optimizer's memory, of which some arrays have a row for each particle.

    def _rowwise(self) -> list[bool]:
        """Which arrays of the optimizer have a row for each particle: those that grow with their number."""

        def shapes(rows: int) -> list[tuple[int, ...]]:
            like = jax.ShapeDtypeStruct((rows, *self.shape[1:]), self.dtype)
            return [leaf.shape for leaf in jax.tree.leaves(jax.eval_shape(self.sampler.optimizer.init, like))]

        return [one != other for one, other in zip(shapes(3), shapes(5), strict=True)]

    def _place(self, particles: Floats, memory: list[Any] | None) -> tuple[Array, Any]:
        """Particles and memory on the devices; a fresh memory where none is given."""
        self.shape, self.dtype = particles.shape, particles.dtype
        spread = self.sampler._spread(particles, self.layout)
        init = self.sampler.optimizer.init
        rowwise = self._rowwise()
        like = jax.eval_shape(init, jax.ShapeDtypeStruct(spread.shape, spread.dtype))
        leaves, tree = jax.tree.flatten(like)
        specs = [self.sampler._sharding(Spec(*(("particles",) if wide else ()))) for wide in rowwise]
        if memory is None:
            return spread, jax.jit(init, out_shardings=jax.tree.unflatten(tree, specs))(spread)
        placed = []
        for value, leaf, spec, wide in zip(memory, leaves, specs, rowwise, strict=True):
            if wide:
                placed.append(self.sampler._spread(value, self.layout))
            else:
                whole = np.asarray(value, leaf.dtype)
                placed.append(jax.make_array_from_callback(whole.shape, spec, whole.__getitem__))
        return spread, jax.tree.unflatten(tree, placed)

    def _tensors(self) -> dict[str, Any]:
        """Everything that a restart needs, whole and without rows that only fill up."""
        n, gathered = self.layout.n, self.sampler._gathered
        tensors = {"particles": gathered(self.state[0])[:n], "key": np.asarray(jax.random.key_data(self.key))}
        for number, (leaf, wide) in enumerate(zip(jax.tree.leaves(self.state[1]), self._rowwise(), strict=True)):
            tensors[f"optimizer.{number}"] = gathered(leaf)[:n] if wide else gathered(leaf)
        return tensors

    def _save(self, checkpoints: Checkpoints) -> None:
        checkpoints.save(self.step, self._tensors(), {"form": FORM, "run": self.identity})

    def _restore(self, checkpoints: Checkpoints) -> None:
        expected = self._tensors()
        restored = checkpoints.restore(expect=expected)
        if restored is None:
            return
        where = checkpoints.directory
        others = [] if np.array_equal(restored.tensors["key"], expected["key"]) else ["key"]
        if restored.metadata.get("form") == FORM:
            others += differences(restored.metadata["run"], self.identity)
        else:
            warnings.warn(
                f"{where} was saved by an earlier version, which did not write down density, data and optimizer: "
                "make sure that they are those of this run",
                stacklevel=4,
            )
        if others:
            raise CheckpointError(
                f"{where} has a run with another {', another '.join(others)}; give what that run had, or another "
                "directory. A run of its own may start from the particles of that one: give them as initial="
            )
        if restored.step > self.n_steps:
            raise CheckpointError(
                f"{where} has step {restored.step} of this run already, which is more than n_steps={self.n_steps}; "
                f"give n_steps={restored.step} or more, or another directory"
            )
        memory = [restored.tensors[name] for name in expected if name.startswith("optimizer.")]
        self.step = restored.step
        self.state = self._place(restored.tensors["particles"], memory)

    def _agreed(self, start: Floats, settings: dict[str, Any], *, progress: bool) -> bool:
        """What process 0 says about progress, which decides where all of them pause.

        Refuses a start where the processes were not given the same: they would hang, or end in nonsense.
        """
        if jax.process_count() == 1:
            return progress
        from jax.experimental import multihost_utils

        data = [leaf for leaf in jax.tree.leaves(self.sampler._data) if getattr(leaf, "is_fully_addressable", True)]
        given = {
            PARTICLES: [start],
            KEY: [np.asarray(jax.random.key_data(self.key))],
            DATA: data,
            **{
                (f"has another {name}", f"give {name} the same on all processes"): [
                    np.frombuffer(repr(value).encode(), "u1")
                ]
                for name, value in settings.items()
            },
        }
        digests = [*map(_digest, given.values()), np.full(8, progress, np.uint8)]
        told = multihost_utils.process_allgather(np.stack(digests))
        for number, what in enumerate(given):
            _refuse(what, [process for process, one in enumerate(told[:, number]) if (one != told[0, number]).any()])
        values = multihost_utils.process_allgather(densities(self.sampler, start))
        _refuse(DENSITY, [process for process, one in enumerate(values) if not agree(one, values[0])])
        return bool(told[0, -1].any())


FORM = "srunbook.svgd 2"
"""Form of a checkpoint."""

PARTICLES = ("starts from other particles", "make them from the same seed on all processes, as in jax.random.key(0)")
KEY = ("has another key", "give the same on all processes, as in jax.random.key(0)")
DATA = ("has other data", "each process reads all rows, in the same order; it is the particles that are spread")
DENSITY = (
    "has another log density",
    "each process runs the whole program: seed what it draws, or give the data as data=",
)
"""What the processes may differ in, and what mends it."""


def _duration(seconds: float) -> str:
    """Writes how long a step took.

    >>> _duration(0.0208), _duration(0.9996), _duration(27.91)
    ('20.8 ms', '1 s', '27.9 s')
    """
    return f"{1e3 * seconds:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"


def _refuse(what: tuple[str, str], processes: list[int]) -> None:
    """Raises where processes differ from process 0."""
    if processes:
        raise SVGDError(f"process {', '.join(map(str, processes))} {what[0]} than process 0; {what[1]}")


def _digest(arrays: list[Any]) -> np.ndarray[Any, Any]:
    """Some bytes that differ where arrays do."""
    digest = hashlib.sha256()
    for array in map(np.asarray, arrays):
        digest.update(f"{array.shape} {array.dtype} ".encode() + array.tobytes())
    return np.frombuffer(digest.digest()[:8], np.uint8)


def _checkpoints(directory: str | os.PathLike[str]) -> Checkpoints:
    from jax.experimental import multihost_utils

    return Checkpoints(
        directory,
        process_id=jax.process_index(),
        num_processes=jax.process_count(),
        barrier=lambda: multihost_utils.sync_global_devices("srunbook.svgd checkpoint"),
    )


class _Clock:
    """Times each process alone: within a step all wait for the slowest, and so look alike.

    Args:
        sampler: The settings.
        path: The log.
    """

    def __init__(self, sampler: SVGD, path: Path) -> None:
        self.sampler = sampler
        self.path = path
        self.hosts = _told(os.environ.get("SLURMD_NODENAME") or socket.gethostname())
        self.samples: list[list[float]] = [[] for _ in self.hosts]
        self._scores = jax.jit(sampler.target.scores)

    def take(self, step: int, particles: Array) -> None:
        """Takes one sample of each process, and writes them down."""
        shards = [shard.data for shard in particles.addressable_shards]
        batch = self.sampler.target.batch(self.sampler._data, jax.random.key(0), jax.numpy.int32(step))
        if not self.samples[0]:
            self._timed(shards, batch)  # compiles
        seconds = self._timed(shards, batch)
        if jax.process_count() > 1:
            from jax.experimental import multihost_utils

            taken = multihost_utils.process_allgather(np.float32(seconds)).reshape(-1)
        else:
            taken = np.array([seconds])
        for samples, value in zip(self.samples, taken, strict=True):
            samples.append(float(value))
        if jax.process_index() == 0:
            rows = [
                json.dumps({"step": step, "process": number, "host": host, "score_seconds": round(float(value), 7)})
                for number, (host, value) in enumerate(zip(self.hosts, taken, strict=True))
            ]
            with self.path.open("a", encoding="utf-8") as log:
                log.write("\n".join(rows) + "\n")

    def _timed(self, shards: list[Array], batch: Any) -> float:
        start = time.perf_counter()
        jax.block_until_ready([self._scores(shard, batch) for shard in shards])
        return time.perf_counter() - start

    def timings(self) -> tuple[ProcessTiming, ...]:
        """All samples so far."""
        return tuple(
            ProcessTiming(number, host, tuple(samples))
            for number, (host, samples) in enumerate(zip(self.hosts, self.samples, strict=True))
        )


def _told(name: str) -> list[str]:
    """What each process says, in their order."""
    if jax.process_count() == 1:
        return [name]
    from jax.experimental import multihost_utils

    width = 64
    padded = np.frombuffer(name.encode()[:width].ljust(width, b"\0"), np.uint8)
    return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in multihost_utils.process_allgather(padded)]
