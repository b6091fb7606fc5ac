"""How long `import srunbook` takes beyond the interpreter's own start.

python bench/import_time.py            # writes bench/results/import_time.json
python bench/import_time.py --repeats 5 --output /tmp/x.json
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from helpers.typed import typed

import srunbook
from srunbook.measurements import Configuration, Measurement, write_measurement

STATEMENTS = {
    "the interpreter alone": "pass",
    "import srunbook": "import srunbook",
    "import srunbook.slurm": "import srunbook.slurm",
    "import srunbook.simulate": "import srunbook.simulate",
    "import srunbook.cli": "import srunbook.cli",
}
RESULT = Path(__file__).parent / "results" / "import_time.json"


def milliseconds(statement: str) -> float:
    """Measure the wall time of a fresh interpreter that runs one statement, in milliseconds."""
    # Python keeps what it compiled, as it does for an installed package, though it was told not to write here.
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], env=environ, check=True)
    return (time.perf_counter() - start) * 1000


def main() -> None:
    """Take the samples in turn, so that a slow moment of the machine meets all statements alike."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()

    for statement in STATEMENTS.values():  # bytecode and page cache
        milliseconds(statement)
    samples: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    for _ in range(options.repeats):
        for name, statement in STATEMENTS.items():
            samples[name].append(round(milliseconds(statement), 3))

    configurations = []
    for name, walls in samples.items():
        beyond = [round(wall - alone, 3) for wall, alone in zip(walls, samples["the interpreter alone"], strict=True)]
        series = {"wall_ms": walls} if name == "the interpreter alone" else {"wall_ms": walls, "beyond_ms": beyond}
        configurations.append(Configuration(name, {"statement": STATEMENTS[name]}, series))
        print(f"{name:28}" + "".join(f"  {q} {configurations[-1].median(q):8.2f}" for q in series))
    measurement = Measurement.taken_now(
        typed(),
        configurations,
        versions={"srunbook": srunbook.__version__},
        parameters={"repeats": options.repeats, "warm_up": 1, "order": "in turn"},
    )
    write_measurement(options.output, measurement)


if __name__ == "__main__":
    main()
