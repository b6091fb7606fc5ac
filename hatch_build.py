"""Lets a build write what `srunbook explain` knows of failures, from the pages that describe them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Entries(BuildHookInterface[Any]):
    """Writes `src/srunbook/explain/entries.json` before a wheel is made, or a checkout is installed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 # hatchling calls it so
        """Write the file."""
        places = [str(Path(self.root, "src")), *filter(None, [os.environ.get("PYTHONPATH")])]  # pip's build packages
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
        subprocess.run([sys.executable, "-m", "docs._ext.failure_entries"], cwd=self.root, env=environ, check=True)
