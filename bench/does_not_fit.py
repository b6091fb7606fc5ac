"""How far each layout of the guide *When it does not fit* is from one process, after 20 steps.

python bench/does_not_fit.py            # writes bench/results/does_not_fit.json
python bench/does_not_fit.py --output /tmp/x.json
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from helpers.fit_trainings import PROGRAMS, STEPS, difference, train
from helpers.program import options_of, write
from measurements import Configuration, read_measurement

COMBINED = Path(__file__).with_name("ranks") / "every_layout.py"

AXES = ("pipeline", "data", "shard", "tensor")

RUNGS = {
    # program, nodes, ranks on each: size of each axis
    ("ddp.py", 1, 2): (1, 2, 1, 1),
    ("ddp.py", 1, 4): (1, 4, 1, 1),
    ("fsdp.py", 1, 2): (1, 1, 2, 1),
    ("fsdp.py", 1, 3): (1, 1, 3, 1),
    ("fsdp.py", 1, 4): (1, 1, 4, 1),
    ("hsdp.py", 2, 2): (1, 2, 2, 1),
    ("tensor_parallel.py", 1, 2): (1, 1, 1, 2),
    ("tensor_parallel.py", 1, 4): (1, 1, 1, 4),
    ("fsdp_tp.py", 2, 2): (1, 1, 2, 2),
    ("context_parallel.py", 1, 2): (1, 1, 2, 1),
    ("context_parallel.py", 1, 4): (1, 1, 4, 1),
    ("pipeline.py", 1, 2): (2, 1, 1, 1),
    ("pipeline.py", 1, 3): (3, 1, 1, 1),
    ("pipeline.py", 1, 4): (4, 1, 1, 1),
    ("less_memory.py", 1, 2): (1, 1, 2, 1),
    ("less_memory.py", 1, 4): (1, 1, 4, 1),
}
TOGETHER = (
    (2, 2, 1, 1),
    (2, 1, 2, 1),
    (2, 1, 1, 2),
    (1, 2, 1, 2),
    (2, 2, 2, 1),
    (2, 2, 1, 2),
    (2, 1, 2, 2),
    (1, 2, 2, 2),
)
"""What no program of the guide does: pairs of four ranks, and three kinds on eight."""


def main() -> None:
    """Train one process in each precision, then every layout that the file does not have."""
    options = options_of(__doc__, "does_not_fit")

    runs = [(PROGRAMS / name, nodes, each, (), mesh) for (name, nodes, each), mesh in RUNGS.items()]
    for mesh in TOGETHER:
        ranks = mesh[0] * mesh[1] * mesh[2] * mesh[3]
        runs.append((COMBINED, 1, ranks, mesh, mesh))
    kept = read_measurement(options.output).configurations if options.output.exists() else []
    configurations = []
    expected = {dtype: train(PROGRAMS / "ddp.py", 1, 1, dtype=dtype) for dtype in ("float64", "float32")}
    for path, nodes, each, arguments, mesh in runs:
        parameters = {"program": path.name, **dict(zip(AXES, mesh, strict=True))}
        samples = next((dict(row.samples) for row in kept if row.parameters == parameters), {})
        for dtype in () if samples else expected if path != COMBINED else ("float64",):
            loss, parameter = difference(train(path, nodes, each, *arguments, dtype=dtype), expected[dtype])
            samples[f"loss_in_{dtype}"] = [loss]
            samples[f"parameters_in_{dtype}"] = [parameter]
        name = f"{path.stem} {'x'.join(map(str, mesh))}"
        configurations.append(Configuration(name, parameters, samples))
        print(name, samples, flush=True)
    write(
        options.output,
        configurations,
        versions={"torch": version("torch")},
        parameters={"steps": STEPS, "backend": "gloo", "difference": "largest absolute"},
    )


if __name__ == "__main__":
    main()
