"""Run the programs of the guides with other versions of Python and of their frameworks.

python tests/versions.py                       # everything; compares with recordings/versions.json
python tests/versions.py jax==0.6 --record     # only rows with such names, and writes what is new into that file

Each row has an environment in .nox/versions, which uv makes once and then keeps up to date. A program runs there with
the command of its recording, in a copy of its folder. It works if it exits with status 0, if all ranks print their end
lines, and if the losses are the recorded ones.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[1]))

import psutil
from support.ports import free_port
from support.programs import losses

from recordings import Recording, read_recording
from recordings.comparing import TOLERANCE

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "recordings" / "versions.json"
ENVIRONMENTS = ROOT / ".nox" / "versions"
FOLDERS = ("checkpoints", "does_not_fit", "gloo_ddp", "jax_multinode", "lightning", "svgd", "torchrun")

PATIENCE = 200
"""Seconds after which a program counts as hanging: with the recorded versions, none takes half of that."""

JAX = ("optax", "orbax-checkpoint", "matplotlib", "scikit-learn")
TORCH = ("numpy", "matplotlib", "psutil", "scikit-learn")
PINNED = {line.split("==")[0]: line for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()}
"""The packages of the recordings, such as `jax==0.10.2`."""


class Row(NamedTuple):
    """One environment.

    Args:
        package: What the row is about. The programs that import it run.
        version: What uv is asked for after its name; empty for the newest.
        python: Version of Python.
        others: What else is installed.
    """

    package: str
    version: str
    python: str
    others: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return the name of the row and of its environment."""
        return f"{self.package}{self.version or ', newest'}, Python {self.python}"


ROWS = (
    Row("jax", "==0.5.*", "3.11", JAX),
    Row("jax", "==0.6.*", "3.11", JAX),
    Row("jax", "==0.7.*", "3.12", JAX),
    Row("jax", "==0.8.*", "3.12", JAX),
    Row("jax", PINNED["jax"].removeprefix("jax"), "3.13", JAX),
    Row("jax", "", "3.14", JAX),
    Row("orbax-checkpoint", "==0.11.40", "3.11", (PINNED["jax"], *JAX)),
    Row("orbax-checkpoint", "", "3.11", (PINNED["jax"], *JAX)),
    Row("torch", "==2.9.*", "3.12", TORCH),
    Row("torch", PINNED["torch"].removeprefix("torch"), "3.11", TORCH),
    Row("torch", "", "3.14", TORCH),
    Row("lightning", "==2.4.*", "3.11", (PINNED["torch"], "tensorboard", *TORCH)),
    Row("lightning", "==2.5.*", "3.11", (PINNED["torch"], "tensorboard", *TORCH)),
    Row("lightning", "", "3.11", (PINNED["torch"], "tensorboard", *TORCH)),
    Row("accelerate", "==1.10.*", "3.11", (PINNED["torch"], "transformers", *TORCH)),
    Row("accelerate", "", "3.11", (PINNED["torch"], "transformers", *TORCH)),
    Row("transformers", "==5.10.*", "3.11", (PINNED["torch"], "accelerate", *TORCH)),
    Row("transformers", "", "3.11", (PINNED["torch"], "accelerate", *TORCH)),
)


def programs(package: str) -> dict[Path, Recording]:
    """Return the programs that import a package, with their recordings.

    The programs of another framework that builds on the package have rows of their own.
    """
    found = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / "examples" / folder).rglob("*.recording.json")):
            source, recording = path.with_name(path.name.partition(".")[0] + ".py"), read_recording(path)
            ran_here = recording.where != "slurm" and recording.exit_code == 0
            if not source.exists() or not ran_here or "weights" in recording.command:  # these need a model first
                continue
            text = source.read_text(encoding="utf-8")
            names = re.findall(r"^ *(?:import|from) (\w+)", text, re.MULTILINE)
            names += ["jax"] * bool(re.search(r"srunbook\.svgd|initialize_distributed", text))
            name = package.partition("-")[0]
            above = {"lightning", "accelerate", "transformers"} - {name} if name == "torch" else set()
            if name in names and not above & {*names}:
                found[source] = recording
    return found


def uv(*arguments: str) -> str:
    """Run uv; return what it printed."""
    command = [sys.executable, "-m", "uv", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def make(row: Row) -> tuple[Path, dict[str, str]]:
    """Make the environment of a row, or bring it up to date; return its folder and the versions of what was asked."""
    folder = ENVIRONMENTS / re.sub(r"[^\w.-]+", "-", row.name)
    if not folder.exists():
        uv("venv", "--quiet", "--python", row.python, str(folder))
    python = str(folder / "bin" / "python")
    uv("pip", "install", "--quiet", "--upgrade", "--python", python, row.package + row.version, *row.others)
    installed = {
        item["name"]: item["version"]
        for item in json.loads(uv("pip", "list", "--quiet", "--format=json", "--python", python))
    }
    asked = [re.split("[=<>]", name)[0] for name in (row.package, *row.others)]
    version = subprocess.run([python, "-V"], check=True, capture_output=True, text=True).stdout.split()[1]
    return folder, {"python": version, **{name: installed[name].partition("+")[0] for name in dict.fromkeys(asked)}}


def problem(source: Path, recording: Recording, environment: Path, tries: int = 3) -> str:
    """Run a program in an environment; return what is wrong in one line, or nothing.

    Gloo sometimes aborts a process that has done its work (docs/troubleshooting/torch-abort-at-exit.md): a run that
    ends so tells nothing about a version, and the program runs again.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, source.parent.name)
        shutil.copytree(source.parent, folder, ignore=shutil.ignore_patterns("__pycache__", "*.recording.json"))
        own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "JAX_", "SLURM"))}
        own |= {"PATH": f"{environment}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"}
        own |= {"PYTHONPATH": str(ROOT / "src"), "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
        log = Path(place, "log")
        with log.open("w") as output:
            both = {"stdout": output, "stderr": subprocess.STDOUT}
            shell = ["bash", "-c", recording.command.replace(":29400", f":{free_port()}")]
            process = subprocess.Popen(shell, cwd=folder, env=own, **both)
        try:
            status = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            for left in (*psutil.Process(process.pid).children(recursive=True), process):
                left.kill()
            process.wait()
            return "it hangs"
        text = log.read_text(encoding="utf-8", errors="replace").replace(f"{folder}/", "")
    if status and "(SIGABRT)" in text and tries > 1:
        print(f"  {source.name} aborted: once more", flush=True)
        return problem(source, recording, environment, tries - 1)
    if status:
        return reason(text) or f"exit status {status}"
    ended, want = (len(re.findall(r"\brank \d+/\d+ end\b", printed)) for printed in (text, recording.text))
    if ended != want:
        return f"{ended} of {want} ranks say that they have ended"
    if len(losses(text)) != len(losses(recording.text)):
        return "it prints other lines"
    pairs = zip(sorted(losses(text)), sorted(losses(recording.text)), strict=True)
    return "" if all(math.isclose(a, b, rel_tol=TOLERANCE) for a, b in pairs) else "other losses"


def reason(text: str) -> str:
    """Return the first line of an output that names an error."""
    lines = [re.sub(r"^\[?(rank)?\d+\]?:? *(\[rank\d+\]: *)?", "", line).strip() for line in text.splitlines()]
    found = next((line for line in lines if re.match(r"(\w+\.)*\w*Error: |error: ", line)), "")
    return re.sub(r" \(/\S+\)$", "", found)[:200]


def main() -> int:
    """Run the rows, and compare them with the file or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="the beginning of a row's name, such as jax==0.6")
    parser.add_argument("--record", action="store_true", help=f"write what is new into {RESULTS.relative_to(ROOT)}")
    parser.add_argument("--failed", action="store_true", help="run only what has not run before, as that file says")
    given = parser.parse_args()
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    recorded = {row.name: known[row.name] for row in ROWS if row.name in known}
    chosen = [row for row in ROWS if row.name.startswith(tuple(given.rows or [""]))]
    if not chosen:
        parser.error(f"no row begins with {' or '.join(given.rows)}; there are\n" + "\n".join(row.name for row in ROWS))
    worse = []
    for at, row in enumerate(chosen, 1):
        print(f"{at}/{len(chosen)} {row.name}", flush=True)
        environment, packages = make(row)
        found = {}
        before = recorded.get(row.name, {}).get("programs", {})
        for source, recording in programs(row.package).items():
            name, start = source.relative_to(ROOT / "examples").as_posix(), time.monotonic()
            if given.failed and before.get(name) == "":
                found[name] = ""
                continue
            found[name] = problem(source, recording, environment)
            print(f"  {name}: {found[name] or 'ran'} ({time.monotonic() - start:.0f} s)", flush=True)
            if found[name] and found[name] != before.get(name, ""):
                worse.append(f"{row.name}: {name}: {found[name]}")
        recorded[row.name] = {
            "package": row.package,
            "date": datetime.now(UTC).date().isoformat(),
            "versions": packages,
            "programs": found,
        }
        if given.record:
            ordered = {other.name: recorded[other.name] for other in ROWS if other.name in recorded}
            RESULTS.write_text(json.dumps(ordered, indent=2) + "\n", encoding="utf-8")
    if worse and not given.record:
        print("\n".join(["no longer runs:", *worse, "If this is as it should be: nox -s versions -- --record"]))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
