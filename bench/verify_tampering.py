"""What `srunbook verify` says of jobs that were tampered with in every way, and of honest ones.

python bench/verify_tampering.py                          # writes bench/results/verify_tampering.json
python bench/verify_tampering.py --tampered 366 --honest 100 --output here.json

A job may suffer several kinds of tampering; it counts as one of its first.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from helpers.typed import typed

import srunbook
from srunbook.measurements import Configuration, Measurement, write_measurement

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "bench" / "results" / "verify_tampering.json"
sys.path.insert(0, str(ROOT / "tests"))

from support.drawn_jobs import SHAPES, draw  # noqa: E402
from support.tampering import KINDS, seeds, tampered  # noqa: E402
from support.verdicts import DEFECTS, PATIENCE, VERDICTS, verdict  # noqa: E402

QUANTITIES = ("failed", *VERDICTS.values(), *DEFECTS)


def row(name: str, parameters: dict[str, str], counts: Counter[str]) -> Configuration:
    """Make a row of how many jobs were drawn, and of how many got which verdict."""
    samples = {"drawn": [float(counts.total())]}
    samples |= {quantity.replace(" ", "_"): [float(counts[quantity])] for quantity in QUANTITIES}
    return Configuration(name, parameters, samples)


def rows_of_tampered(count: int, folder: Path, patience: float) -> list[Configuration]:
    """Judge jobs that were tampered with; print each that passes, or that breaks the verifier."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in sorted(KINDS)}
    for seed in seeds(count, "bench"):
        case = tampered(seed)
        found = verdict(case.job, folder, patience=patience).name
        counts[case.kinds[0].name][found] += 1
        if found in ("passed", *DEFECTS):
            print(f"{found}: {case}", flush=True)
    whole = row("tampered: all", {"rows": "tampered"}, sum(counts.values(), Counter()))
    kinds = {name: {"rows": "kind", "group": KINDS[name].group, "why": KINDS[name].why} for name in counts}
    return [whole, *(row(name, kinds[name], counts[name]) for name in counts if counts[name])]


def rows_of_honest(count: int, folder: Path, patience: float) -> list[Configuration]:
    """Judge honest jobs; print each whose verdict is not one that it deserves."""
    counts: dict[str, Counter[str]] = {shape: Counter() for shape in SHAPES}
    undeserved = 0
    for number in range(count):
        job = draw(random.Random(f"bench-{number}"))
        found = verdict(job, folder, patience=patience).name
        counts[job.shape][found] += 1
        if found not in job.deserves:
            undeserved += 1
            print(f"{found}: honest job bench-{number} of shape {job.shape}", flush=True)
    whole = row("honest: all", {"rows": "honest"}, sum(counts.values(), Counter()))
    whole.samples["undeserved"] = [float(undeserved)]
    return [whole, *(row(f"honest: {shape}", {"rows": "shape"}, counts[shape]) for shape in counts if counts[shape])]


def main() -> None:
    """Judge all jobs, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tampered", type=int, default=10_000)
    parser.add_argument("--honest", type=int, default=1000)
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds until a verification is without end")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "job"
        rows = rows_of_tampered(options.tampered, place, options.patience)
        rows += rows_of_honest(options.honest, place, options.patience)
    for whole in (row for row in rows if row.name.endswith(": all")):
        print(whole.name, {name: int(count) for name, (count,) in whole.samples.items() if count})
    measurement = Measurement.taken_now(
        typed(),
        rows,
        versions={"srunbook": srunbook.__version__},
        parameters={"tampered": options.tampered, "honest": options.honest, "kinds": len(KINDS)},
    )
    write_measurement(options.output, measurement)


if __name__ == "__main__":
    main()
