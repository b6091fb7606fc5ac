"""How far a JAX training is from one without a break when each mesh reads what each other one has written.

python bench/does_not_fit_jax_checkpoints.py              # writes bench/results/does_not_fit_jax_checkpoints.json
python bench/does_not_fit_jax_checkpoints.py --only data  # pairs in which data=4 writes or reads

Orbax saves half of the steps of resume_jax.py in the guide *When it does not fit* on one mesh, and another one trains
the rest; the losses and the parameters at the end are compared with those of one device, in float64.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import pytest
from helpers import pairs

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # the oracle is the tests'

from support import jax_continued  # noqa: E402
from support.compile_cache import share_compile_cache  # noqa: E402
from support.jax_continued import MESHES  # noqa: E402
from support.jax_layouts import STEPS, Training, difference, train  # noqa: E402


def main() -> None:
    """Train one device, then every pair of meshes."""
    chosen = pairs.options(__doc__ or "", "does_not_fit_jax_checkpoints")
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        share_compile_cache(patch, folder / "compiled")
        one = train(folder / "one", "sharded_jax.py", "data=1")

        jax_continued.write(folder / "written")

        @functools.cache
        def continued(reader: str) -> dict[str, Training]:
            return jax_continued.read(folder / "written", folder / reader, reader)

        def apart(writer: str, reader: str) -> float:
            found = difference(continued(reader)[writer], one)
            return max(found.loss, found.parameters)

        pairs.measure(
            chosen,
            MESHES,
            apart,
            versions={"jax": version("jax"), "orbax-checkpoint": version("orbax-checkpoint")},
            parameters={"steps": STEPS, "saved_after_step": jax_continued.SAVED},
        )


if __name__ == "__main__":
    main()
