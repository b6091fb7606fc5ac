"""Skips tests marked as `needs_gpu("torch", "matplotlib")` where that framework sees no GPU or a module is missing.

The tests run as `nox -s gpu`, and where nothing can be installed, as `PYTHONPATH=src python -m pytest tests/gpu`:
pytest.ini in this folder keeps away what all other tests share.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys

import pytest

SEES_A_GPU = {
    "jax": "import jax; raise SystemExit(jax.default_backend() != 'gpu')",
    "torch": "import torch; raise SystemExit(not torch.cuda.is_available())",
}
"""Ends with status 0 where the framework can use a GPU."""


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line("markers", "needs_gpu(framework, *modules): needs a GPU, and what sees it")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test of the mark."""
    for mark in item.iter_markers("needs_gpu"):
        if not can_run(*mark.args):
            pytest.skip(f"needs an NVIDIA GPU, and {', '.join(mark.args)} built for it")


@functools.cache
def can_run(framework: str, *modules: str) -> bool:
    """Whether this machine has an NVIDIA GPU, and this Python a framework that can use it, and the modules."""
    if shutil.which("nvidia-smi") is None:
        return False
    environ = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
    code = f"import {', '.join((framework, *modules))}; {SEES_A_GPU[framework]}"
    return subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, check=False).returncode == 0
