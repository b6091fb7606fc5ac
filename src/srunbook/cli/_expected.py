"""What the command gives to a cluster besides Slurm: what the job scripts of the guides expect of a site.

They expect `~/jax-env`, `~/torch-env`, conda and a few modules. A stand-in takes the place of conda.
"""

from __future__ import annotations

from pathlib import Path

import srunbook
from srunbook.cluster import Bind, Provision

ENVIRONMENTS = ("jax-env", "torch-env")
MODULES = {
    "dl": '#%Module\nmodule-whatis "deep-learning software"\n',
    "jax/23.10-sif": '#%Module\nmodule-whatis "JAX in an Apptainer image"\nsetenv JAX_IMAGE /opt/images/jax.sif\n',
    "pytorch/2.13": '#%Module\nmodule-whatis "PyTorch"\nprepend-path PATH $env(HOME)/torch-env/bin\n',
}
CONDA = "miniforge3/bin/activate"
"""What a job script sources to activate a conda environment, below the home."""


def provision() -> Provision:
    """Return what the command gives to a cluster; jobs import this package from where it is imported here."""
    conda = Path(__file__).with_name("conda_stand_in.sh").read_text(encoding="utf-8")
    package = Path(srunbook.__file__).parents[1]
    binds = () if package.name == "site-packages" else (Bind(package, package),)
    return Provision(links=ENVIRONMENTS, files={CONDA: conda}, binds=binds, modules=MODULES)
