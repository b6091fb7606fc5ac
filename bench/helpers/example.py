"""Programs of examples/, taken as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(name: str) -> ModuleType:
    """Import a program of examples/ as a module.

    Args:
        name: Its path from examples/, such as `lightning/full/train.py`. It imports no module beside it.

    Raises:
        FileNotFoundError: There is no such program.
    """
    path = EXAMPLES / name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses and pickles look their module up by its name
    spec.loader.exec_module(module)
    return module
