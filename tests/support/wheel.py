"""The wheel in an environment of its own, without this checkout."""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path

WHEELS = Path(__file__).resolve().parents[2] / ".nox" / "wheelhouse"
"""What the wheel depends on: noxfile.py downloads it, so that no test asks an index."""


class Installed:
    """An environment of its own into which the wheel was installed, and an empty folder.

    Args:
        folder: Where it lies.
        wheel: The wheel, with an extra or without.
    """

    def __init__(self, folder: Path, wheel: str) -> None:
        self.programs, self.here = folder / "env" / "bin", folder / "here"
        self.here.mkdir(parents=True)
        venv.EnvBuilder(with_pip=True).create(folder / "env")
        pip = ["python", "-m", "pip", "--isolated", "install", "--quiet", "--no-index", "--find-links", str(WHEELS)]
        done = self.run(*pip, wheel)
        assert done.returncode == 0, f"{done.stderr}\nTo fill .nox/wheelhouse again, delete it and run nox -s tests."

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, which knows nothing of this one."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SLURM", "COV"))}
        own["PATH"] = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        command = [self.programs / program, *arguments]
        return subprocess.run(command, cwd=self.here, env=own, capture_output=True, text=True, check=False)

    def imports(self, *rooms: str) -> None:
        """Import rooms, each in a process of its own, from the wheel."""
        for room in rooms:
            done = self.run("python", "-c", f"import srunbook.{room} as room; print(room.__file__)")

            assert done.returncode == 0, f"{room}: {done.stderr}"
            assert "site-packages" in done.stdout
