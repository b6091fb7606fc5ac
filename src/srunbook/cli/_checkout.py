"""What a cluster is given by the command: the environment of the guides, and the checkout it is started from.

The guides' scripts expect `~/jax-env`, `~/torch-env`, conda and a few modules, as they would find them on a site; a
stand-in takes the place of conda. Where `srunbook` runs from a checkout, jobs also see that, and the image of the JAX
guide is built.
"""

from __future__ import annotations

from pathlib import Path

import srunbook
from srunbook.cluster import Bind, Image, Provision

PLACE = Path("/opt/srunbook")
"""Where jobs see the checkout, besides its own path, which an editable installation points to."""

ENVIRONMENTS = ("jax-env", "torch-env")
IMAGE = "jax"
DEFINITION = Path("examples", "jax_multinode", "jax.def")
ARGUMENTS = {"VARIANT": "cpu", "MIRROR": "{mirror}", "INDEX": "{index}"}
MODULES = {
    "dl": '#%Module\nmodule-whatis "deep-learning software"\n',
    "jax/23.10-sif": f'#%Module\nmodule-whatis "JAX in an Apptainer image"\nsetenv JAX_IMAGE /opt/images/{IMAGE}.sif\n',
    "pytorch/2.13": '#%Module\nmodule-whatis "PyTorch"\nprepend-path PATH $env(HOME)/torch-env/bin\n',
}
CONDA = "miniforge3/bin/activate"
"""What a job script sources to activate a conda environment, below the home."""


def checkout() -> Path | None:
    """Return the checkout that this package is run from, or None where it was installed from a wheel."""
    folder = Path(srunbook.__file__).resolve().parents[2]
    return folder if (folder / "pyproject.toml").exists() and (folder / "slurm").is_dir() else None


def provision() -> Provision:
    """Return what the command gives to a cluster."""
    root = checkout()
    binds = (Bind(root, PLACE), Bind(root, root)) if root else ()
    images = (Image(IMAGE, root / DEFINITION, ARGUMENTS),) if root and (root / DEFINITION).exists() else ()
    conda = Path(__file__).with_name("conda_stand_in.sh").read_text(encoding="utf-8")
    return Provision(links=ENVIRONMENTS, files={CONDA: conda}, binds=binds, modules=MODULES, images=images)


def programs_of(script: Path) -> list[Path]:
    """Return the programs that a published script needs: for `slurm/<guide>/NAME.sbatch` those in `examples/<guide>`.

    Those in its folder `full` count as well. They are copied into one flat folder, so no two may have the same name.

    Returns:
        The programs, without the drivers of the gallery; empty for any other script.
    """
    guide = script.resolve().parent
    if guide.parent.name != "slurm":
        return []
    folder = guide.parent.parent / "examples" / guide.name
    programs = [*folder.glob("*.py"), *folder.glob("full/*.py")]
    return sorted(path for path in programs if not path.name.startswith("plot_"))
