"""How far a training is from one without a break when each layout reads what each other one has written.

python bench/does_not_fit_checkpoints.py            # writes bench/results/does_not_fit_checkpoints.json
python bench/does_not_fit_checkpoints.py --only FSDP   # pairs in which FSDP writes or reads

Half of the steps are trained in one layout of the guide *When it does not fit*, and half in another; the losses and the
parameters at the end are compared with those of one process, in float64.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from helpers import pairs
from helpers.fit_trainings import PROGRAMS, STEPS, difference, train

SAVED = 10
"""Step after which a layout writes."""

LAYOUTS = {
    "DDP": ("ddp.py", 1, 4),
    "FSDP": ("fsdp.py", 1, 4),
    "HSDP": ("hsdp.py", 2, 2),
    "tensor": ("tensor_parallel.py", 1, 4),
    "FSDP_and_tensor": ("fsdp_tp.py", 2, 2),
    "pipeline": ("pipeline.py", 1, 4),
    "FSDP_on_1": ("fsdp.py", 1, 1),
    "FSDP_on_2": ("fsdp.py", 1, 2),
}
"""Program, nodes and ranks on each: four ranks in all, unless the name says otherwise."""

LOOP = "    for step in range(1, STEPS + 1):\n"
UPDATE = "        optimizer.step()\n"
IMPORT = """    import resume
    resume.CHECKPOINTS = resume.Path({!r})
"""
"""The functions that save and load are those of `resume.py`, imported into the other programs of the guide."""


def main() -> None:
    """Train one process, then every pair of layouts."""
    chosen = pairs.options(__doc__ or "", "does_not_fit_checkpoints")
    with tempfile.TemporaryDirectory() as folder:
        one = train(PROGRAMS / "ddp.py", 1, 1)

        def apart(writer: str, reader: str) -> float:
            checkpoints = Path(folder, writer)
            bring = IMPORT.format(str(checkpoints))
            if not checkpoints.exists():
                save = f"        if step == {SAVED}:\n            resume.save(model, optimizer, batches, step)\n"
                name, *layout = LAYOUTS[writer]
                train(PROGRAMS / name, *layout, edits={LOOP: bring + LOOP, UPDATE: UPDATE + save}, steps=SAVED)
            load = f"{bring}    done = resume.load(model, optimizer, batches)\n"
            name, *layout = LAYOUTS[reader]
            second = train(PROGRAMS / name, *layout, edits={LOOP: load + LOOP.replace("1,", "done + 1,")})
            whole = replace(second, losses=one.losses[:SAVED] + second.losses)
            return max(difference(whole, one))

        pairs.measure(
            chosen,
            LAYOUTS,
            apart,
            versions={"torch": version("torch")},
            parameters={"steps": STEPS, "saved_after_step": SAVED, "backend": "gloo"},
        )


if __name__ == "__main__":
    main()
