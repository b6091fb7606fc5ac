"""How long a step of SVGD takes, beside other packages and beside its exponentials and products by themselves.

python bench/svgd_speed.py --peers FOLDER     # writes bench/results/svgd_speed.json and svgd_memory.json

The other packages come from `pip install --no-deps --target FOLDER -r bench/peers.txt`; `nox -s bench` does that.
Each has 16 GiB and 120 s a step. Of what needs more, the row says so, and how that is known.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "1")  # one device that uses all cores

import jax
import jax.numpy as jnp
import optax
from helpers.program import write
from helpers.svgd_loop import Loop, normal, peak_mebibytes, timed
from jax import lax
from measurements import Configuration, Measurement, read_measurement
from ranks.svgd_peers import ANSWER, MEMORY

import srunbook
from srunbook.svgd import SVGD

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PACKAGES = ("blackjax", "numpyro", "phasic")
STEP_SECONDS = 120.0
"""What a package may take for a step, and for compiling it."""

ON_CPU = jax.default_backend() == "cpu"
BLOCK = 1 << 20 if ON_CPU else 1 << 26
"""Elements of the kernel matrix in each block of a part: 4 MiB on CPUs, where they stay in the caches."""

MANY = (65536, 8)
"""Particles and dimensions of the run whose memory is measured."""


def standard_normal(x: Any) -> Any:
    """Return the log density of the target, whose score costs next to nothing: the step is the kernel."""
    return -0.5 * jnp.sum(x**2)


def exponentials(rows: int, n: int, d: int, blocks: int) -> Callable[[], Any]:  # noqa: ARG001 - as the products
    """Compute the exponentials of so many blocks in a compiled loop, as a step does."""
    start = jnp.full((rows, n), 0.5)
    call = jax.jit(lambda x: lax.fori_loop(0, blocks, lambda _, y: jnp.exp(-y), x))
    return lambda: call(start)


def products_in(rows: int, n: int, d: int, blocks: int) -> Callable[[], Any]:
    """Compute the products that give the exponents."""
    left, right = normal(rows, d + 2), normal(d + 2, n)

    def once(_: int, carry: Any) -> Any:
        changing, out = carry
        changing = changing * (1 + 1e-30 * out[0, 0])  # so that the product cannot be taken out of the loop
        return changing, jnp.matmul(changing, right, precision=lax.Precision.HIGHEST)

    call = jax.jit(lambda x: lax.fori_loop(0, blocks, once, (x, jnp.zeros((rows, n))))[1])
    return lambda: call(left)


def products_out(rows: int, n: int, d: int, blocks: int) -> Callable[[], Any]:
    """Compute the products that sum with the kernel as weights."""
    summed, kernel = normal(d + 1, rows), normal(rows, n)

    def once(_: int, carry: Any) -> Any:
        changing, out = carry
        changing = changing * (1 + 1e-30 * out[0, 0])
        return changing, out + jnp.matmul(changing, kernel, precision=lax.Precision.HIGHEST)

    call = jax.jit(lambda x: lax.fori_loop(0, blocks, once, (x, jnp.zeros((d + 1, n))))[1])
    return lambda: call(summed)


PARTS = {"exp_ms": exponentials, "product_in_ms": products_in, "product_out_ms": products_out}
"""What every step computes, here each by itself. They bound nothing: a step keeps a tile in the caches between them."""


class Peer:
    """A package in a process of its own.

    Args:
        package: Its name.
        folder: Where it is installed.
    """

    def __init__(self, package: str, folder: Path) -> None:
        self.package, self.folder = package, folder
        self.version = ""  # known once it has answered
        self._process: subprocess.Popen[str] | None = None
        self._listener: threading.Thread | None = None
        self._answers: queue.Queue[str] = queue.Queue()

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        """Ask and return the answer, or None where it did not come in time; then the process is gone."""
        if self._process is None:
            self._start()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        try:
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.end()
            return None
        if not line:
            self.end()
            return {"error": f"the process ended with status {process.returncode}"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _start(self) -> None:
        environ = {**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{self.folder}"}
        command = [sys.executable, "-W", "ignore", str(HERE / "ranks" / "svgd_peers.py")]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)
        self._process, self._answers = process, queue.Queue()
        self._listener = threading.Thread(target=self._listen, args=(process, self._answers), daemon=True)
        self._listener.start()

    @staticmethod
    def _listen(process: subprocess.Popen[str], answers: queue.Queue[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                if line.startswith(ANSWER):
                    answers.put(line.removeprefix(ANSWER))
        answers.put("")

    def end(self) -> None:
        """End the process."""
        if self._process is None or self._listener is None:
            return
        self._process.kill()
        self._process.wait()
        self._listener.join()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None


class Trial:
    """One package with one number of particles and dimensions.

    Args:
        peer: The package.
        case: The case.
        earlier: Milliseconds of its steps with fewer particles, by their number.
        late: Whether the time of the whole benchmark is over.
    """

    def __init__(self, peer: Peer, case: Case, earlier: dict[int, float], *, late: bool) -> None:
        self.peer, self.case = peer, case
        self.samples: list[float] = []
        self.wanted = 0
        self.limit = self._prepared(earlier, late=late)

    def _prepared(self, earlier: dict[int, float], *, late: bool) -> str:
        """Compile; return the limit that the package has hit, or an empty text."""
        n, d = self.case.n, self.case.d
        if earlier:
            fewer = max(earlier)
            estimate = 1e-3 * earlier[fewer] * (n / fewer) ** 2  # a sort of all pairs grows a little faster
            if estimate > STEP_SECONDS:
                return f"120 s: {estimate:.0f} s or more, from n={fewer}"
        if late:
            return "not run: the time of the benchmark was over"
        answer = self.peer.ask({"package": self.peer.package, "n": n, "d": d}, STEP_SECONDS)
        if answer is None:
            return "120 s: compiling"
        if "error" in answer:
            return _short(answer["error"])
        self.peer.version = answer["version"]
        if answer["needed_GiB"] * 2**30 > MEMORY:
            return f"16 GiB: a step needs {answer['needed_GiB']:.3g}"
        self.wanted = -1  # the first sample says how many there will be
        return ""

    def take(self, repeats: int) -> None:
        """Take a sample, if one is still wanted."""
        if self.wanted == 0:
            return
        first = self.wanted < 0
        answer = self.peer.ask({"seconds": 0 if first else self.case.seconds}, STEP_SECONDS)
        if answer is None or "error" in answer:
            self.limit, self.wanted = "120 s: stopped" if answer is None else _short(answer["error"]), 0
            return
        ms = round(answer["ms"], 4)
        if first:
            self.wanted = 0 if ms > 1e4 else 3 if ms > 1e3 else repeats
            if self.wanted:
                return  # it warmed up
        else:
            self.wanted -= 1
        self.samples.append(ms)


def _short(error: str) -> str:
    if "RESOURCE_EXHAUSTED" in error or "MemoryError" in error or "Out of memory" in error:
        return "16 GiB: refused"
    return "not installed" if "No module named" in error else error[:60]


class Case:
    """One number of particles and dimensions.

    Args:
        n: Number of particles.
        d: Dimension.
        seconds: How long each sample takes.
    """

    def __init__(self, n: int, d: int, seconds: float) -> None:
        self.n, self.d, self.seconds = n, d, seconds
        guess = n * n * (d + 10) * (4e-11 if ON_CPU else 1e-13)  # seconds of a step
        self.steps = max(1, min(500, int(seconds / guess)))
        self.loops = {
            name: Loop(SVGD(standard_normal, bandwidth=bandwidth, optimizer=optax.adam(0.05)), normal(n, d), self.steps)
            for name, bandwidth in (("step_ms", "median"), ("step_fixed_ms", float(d)))
        }
        rows = max(1, min(n, BLOCK // n))
        self.parts = {name: part(rows, n, d, -(-n // rows) * self.steps) for name, part in PARTS.items()}

    def sample(self) -> dict[str, float]:
        """Time our step and its parts once each, one right after the other."""
        found = {}
        for name, loop in self.loops.items():
            times: list[float] = []
            while sum(times) * self.steps < self.seconds:
                times.append(loop())
            found[name] = 1e3 * sum(times) / len(times)
        for name, call in self.parts.items():
            found[name] = 1e3 * timed(call, self.seconds / 3) / self.steps
        found["parts_ms"] = sum(found[name] for name in self.parts)
        found["times_parts"] = found["step_ms"] / found["parts_ms"]
        return found


def measured(
    case: Case, peers: list[Peer], earlier: dict[tuple[str, int], dict[int, float]], repeats: int, end: float
) -> Configuration:
    """Measure one row: samples of our step, of its parts and of each package, in turn."""
    trials = []
    for peer in peers:
        known = earlier.setdefault((peer.package, case.d), {})
        trials.append(Trial(peer, case, known, late=time.monotonic() > end))
    taken: dict[str, list[float]] = {}
    for repeat in range(repeats + 1):
        found = case.sample()
        for quantity, value in found.items() if repeat else ():  # the first round warms up
            taken.setdefault(quantity, []).append(round(value, 4))
        for trial in trials:
            trial.take(repeats)
    for trial in trials:
        name = trial.peer.package
        if trial.samples:
            ours = taken["step_ms"]
            taken[f"{name}_ms"] = trial.samples
            taken[f"times_faster_than_{name}"] = [
                round(ms / own, 3) for ms, own in zip(trial.samples, ours, strict=False)
            ]
            earlier[name, case.d][case.n] = min(trial.samples)
    limits = {trial.peer.package: trial.limit or "measured" for trial in trials}
    return Configuration(f"n={case.n}, d={case.d}", {"n": case.n, "d": case.d, "steps": case.steps, **limits}, taken)


def memory(n: int, d: int) -> dict[str, float]:
    """Measure peak memory and time of a run in this process, which has done nothing else."""
    before = peak_mebibytes()
    result = SVGD(standard_normal, dim=d, optimizer=optax.adam(0.05)).run(jax.random.key(0), n, 2)
    peak = peak_mebibytes()
    assert result.steps == 2
    return {"peak_MiB": round(peak, 1), "imports_MiB": round(before, 1), "run_s": round(result.seconds, 3)}


def memories(repeats: int, n: int, d: int) -> Configuration:
    """Measure memory several times, each time in a process of its own."""
    samples: dict[str, list[float]] = {}
    for _ in range(repeats):
        command = [sys.executable, __file__, "--memory", str(n), str(d)]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        for quantity, value in found.items():
            samples.setdefault(quantity, []).append(value)
    return Configuration(f"n={n}, d={d}", {"n": n, "d": d, "steps": 2}, samples)


def say(configuration: Configuration) -> None:
    """Print the medians of a row."""
    figures = [f"{quantity} {configuration.median(quantity):.4g}" for quantity in configuration.samples]
    others = [f"{name}: {configuration.parameters[name]}" for name in PACKAGES if name in configuration.parameters]
    print(f"{configuration.name:14}  {'  '.join(figures)}  ({'; '.join(others)})", flush=True)


def with_origin(before: Measurement) -> list[Configuration]:
    """Return the rows of an earlier result, each with where it comes from."""
    origin = {name: getattr(before, name) for name in ("command", "commit", "date")}
    origin["load_before"] = before.parameters["load_before"]
    return [replace(row, parameters={**origin, **row.parameters}) for row in before.configurations]


def main() -> None:
    """Measure row by row, from few particles to many."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--particles", type=int, nargs="+", default=[256, 1024, 4096, 16384])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[2, 8, 64])
    parser.add_argument("--peers", type=Path, help="where the other packages are installed; without it there are none")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each sample (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=9.0, help="after which no package is begun (%(default)s)")
    parser.add_argument("--output", type=Path, default=RESULTS / "svgd_speed.json")
    parser.add_argument("--add", action="store_true", help="keep the other rows of the output")
    parser.add_argument("--memory", type=int, nargs=2, metavar=("N", "D"), help="only print the memory of one run")
    options = parser.parse_args()
    if options.memory:
        print(json.dumps(memory(*options.memory)))
        return

    end = time.monotonic() + 60 * options.minutes
    load = round(os.getloadavg()[0], 2)
    peers = [Peer(package, options.peers.resolve()) for package in PACKAGES] if options.peers else []
    wanted = {(n, d) for n in options.particles for d in options.dimensions}
    before = read_measurement(options.output) if options.output.exists() else None
    if before and not options.peers and any(name in before.versions for name in PACKAGES):
        parser.error(f"{options.output.name} has other packages, too: give --peers FOLDER, or another --output")
    kept = with_origin(before) if before and options.add else []
    kept = [row for row in kept if (row.parameters["n"], row.parameters["d"]) not in wanted]
    earlier: dict[tuple[str, int], dict[int, float]] = {}
    for row in kept:
        for package in PACKAGES:
            if times := row.samples.get(f"{package}_ms"):
                earlier.setdefault((package, row.parameters["d"]), {})[row.parameters["n"]] = min(times)
    configurations = []
    try:
        for n in sorted(options.particles):
            for d in options.dimensions:
                configurations.append(measured(Case(n, d, options.seconds), peers, earlier, options.repeats, end))
                say(configurations[-1])
    finally:
        for peer in peers:
            peer.end()
    device = jax.devices()[0]
    shared = {"type": "float32", "devices": jax.device_count(), "load_before": load}
    parts = "exp of n x n numbers, and the products (n, d+2) (d+2, n) and (d+1, n) (n, n)"
    parts += f", in compiled loops over blocks of {BLOCK >> 18} MiB"
    versions = {"srunbook": srunbook.__version__, "jax": jax.__version__}
    known = {peer.package: peer.version for peer in peers if peer.version}
    machine = {} if ON_CPU else {"device": device.device_kind}
    configurations = sorted(kept + configurations, key=lambda row: (row.parameters["n"], row.parameters["d"]))
    write(
        options.output,
        configurations,
        versions=(before.versions if before and kept else {}) | versions | known,
        parameters={
            **shared,
            "repeats": options.repeats,
            "warm_up": 1,
            "order": "in turn within each row",
            "parts": parts,
            "limits": "16 GiB and 120 s a step for each package; 3 samples where a step takes a second, 1 where ten",
        },
        machine=machine,
    )
    if ON_CPU and not options.add:
        many = memories(3, *MANY)
        write(
            options.output.with_name(options.output.name.replace("speed", "memory")),
            [many],
            versions=versions,
            parameters={**shared, "repeats": 3, "processes": "a new one for each repeat"},
        )


if __name__ == "__main__":
    main()
