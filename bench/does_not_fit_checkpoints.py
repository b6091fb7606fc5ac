"""How far a training is from one without a break when each layout reads what each other one has written.

python bench/does_not_fit_checkpoints.py            # writes bench/results/does_not_fit_checkpoints.json
python bench/does_not_fit_checkpoints.py --only FSDP   # pairs in which FSDP writes or reads

Half of the steps are trained in one layout of the guide *When it does not fit*, and half in another; the losses and the
parameters at the end are compared with those of one process, in float64.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from helpers import pairs

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # the oracle is the tests'

from support import continued, forked  # noqa: E402
from support.continued import LAYOUTS  # noqa: E402
from support.one_oracle import IMPORTED, PROGRAMS, STEPS, difference, train  # noqa: E402


def main() -> None:
    """Train one process, then every pair of layouts."""
    chosen = pairs.options(__doc__ or "", "does_not_fit_checkpoints")
    with tempfile.TemporaryDirectory() as name, forked.forking(PROGRAMS, *IMPORTED) as process:
        folder = Path(name)
        ranks = forked.Forked(process, folder)
        one = train(ranks, PROGRAMS / "ddp.py", 1, 1)

        def apart(writer: str, reader: str) -> float:
            checkpoints = folder / writer
            if not checkpoints.exists():
                continued.write(ranks, LAYOUTS[writer], checkpoints)
            found = difference(continued.read(ranks, LAYOUTS[reader], checkpoints, one), one)
            return max(found.loss, found.parameters)

        pairs.measure(
            chosen,
            LAYOUTS,
            apart,
            versions={"torch": version("torch")},
            parameters={"steps": STEPS, "saved_after_step": continued.SAVED, "backend": "gloo"},
        )


if __name__ == "__main__":
    main()
