"""What the benchmarks share: their options, the examples and clusters that they measure, and their result."""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from measurements import Configuration

    from srunbook import cluster

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RESULTS = Path(__file__).resolve().parents[1] / "results"


def options_of(doc: str | None, result: str, **defaults: Any) -> argparse.Namespace:
    """Read the options of a program.

    Args:
        doc: What the program says of itself.
        result: Name of the result that it writes without `--output`.
        defaults: Its other options, with the values that they have where they are not given: a list for several values.
    """
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    for name, value in defaults.items():
        several: dict[str, Any] = {"nargs": "+", "type": type(value[0])} if isinstance(value, list) else {}
        parser.add_argument(f"--{name}", **{"type": type(value), "default": value, **several})
    parser.add_argument("--output", type=Path, default=RESULTS / f"{result}.json")
    return parser.parse_args()


def example(name: str) -> ModuleType:
    """Import a program of examples/ as a module.

    Args:
        name: Its path from examples/, such as `lightning/full/train.py`. It imports no module beside it.
    """
    path = EXAMPLES / name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses and pickles look their module up by its name
    spec.loader.exec_module(module)
    return module


def boot(specification: cluster.Specification) -> cluster.State:
    """Bring a cluster up as the command does, with this checkout at /opt/srunbook, in place of one of the same name."""
    from srunbook import cluster
    from srunbook.cli._expected import provision

    root = EXAMPLES.parent
    binds = tuple(cluster.Bind(root, place) for place in (Path("/opt/srunbook"), root))
    cluster.down(specification.name)
    return cluster.up(specification, replace(provision(), binds=binds), say=print)


def printed_samples(
    state: cluster.State, step: Sequence[str], program: Sequence[str], count: int, *, timeout: float
) -> list[dict[str, Any]]:
    """Run a job step; return the samples that its ranks print, each as JSON on a line that begins with `sample`.

    Args:
        state: The cluster.
        step: srun and its options.
        program: What each rank runs.
        count: How many samples there have to be.
        timeout: Seconds.

    Raises:
        SystemExit: The step failed, or a sample is missing.
    """
    from srunbook import cluster

    result = cluster.capture(state, [*step, *program], timeout=timeout)
    samples = [json.loads(text) for text in re.findall(r"^sample (\{.*\})$", result.stdout, re.MULTILINE)]
    if result.returncode != 0 or len(samples) != count:
        raise SystemExit(f"{' '.join(program)}: status {result.returncode}\n{result.stdout}{result.stderr}")
    return samples


def typed() -> str:
    """Return the command of this program, with PATH for every file and folder: these are of one machine."""
    return shlex.join(
        ["python", f"bench/{Path(sys.argv[0]).name}", *("PATH" if "/" in word else word for word in sys.argv[1:])]
    )


def write(
    path: Path,
    rows: Sequence[Configuration],
    *,
    versions: Mapping[str, str] | None = None,
    parameters: Mapping[str, Any] | None = None,
    machine: Mapping[str, Any] | None = None,
) -> None:
    """Print the medians of a result, and write it.

    Args:
        path: The file.
        rows: The raw samples.
        versions: Versions of what was measured; without them, that of srunbook.
        parameters: What all rows share.
        machine: What shaped the result beyond cores, memory and processor.
    """
    from measurements import Measurement, write_measurement

    import srunbook

    for row in rows:
        print(row.name, *(f"{name} {row.median(name):.4g}" for name, series in row.samples.items() if series), sep="  ")
    versions = versions or {"srunbook": srunbook.__version__}
    write_measurement(
        path, Measurement.taken_now(typed(), [*rows], versions=versions, parameters=parameters, machine=machine)
    )
