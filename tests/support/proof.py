"""The run of a job script on a real Slurm, as a recording."""

from __future__ import annotations

import platform
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from support.published import contained_in

from recordings import Recording, read_recording, recording_path
from recordings.checking import generation, new_run
from recordings.comparing import Mask
from srunbook.cluster import FinishedJob, State

ROOT = Path(__file__).resolve().parents[2]

PLACES = re.compile(r'(?<=[" ])/\S*/(?=site-packages/|python3\.\d+/)|(?<=")/home/\w+/[\w.-]+/')
"""Folders of this machine and of the job in a traceback."""


def job_run(
    state: State, script: Path, job: FinishedJob, arguments: Sequence[str] = (), *, command: str = ""
) -> Recording:
    """Describe the run of a script on the test cluster, as a job or on its login node, as a recording would."""
    text = script.read_text(encoding="utf-8")
    versions = {"slurm": state.root["slurm"]}
    engine = contained_in(script)
    if engine == "pyxis":
        versions["pyxis"] = "0.24"  # whose options the stand-in has
    elif engine:
        package = {"charliecloud": "charliecloud-runtime"}.get(engine, engine)
        versions[engine] = re.split("[+-]", state.root["versions"][package])[0]
    else:
        versions["python"] = platform.python_version()
    guide = ROOT / "examples" / script.parent.name
    names = {f"{name}.py" for name in re.findall(r"\b([\w.-]+)\.py\b", text)}
    return new_run(
        script,
        command or shlex.join(["sbatch", script.name, *arguments]),
        PLACES.sub("", job.output).replace(f"{sys.prefix}/bin/", ""),
        programs=[path for name in names for path in (script.with_name(name), *guide.rglob(name)) if path.exists()],
        where="slurm" if script.suffix == ".sbatch" else "process",
        exit_code=job.exit_status,
        versions=versions,
        plugins={name: state.plugins[name] for name in ("proctrack", "task")},
        accounting=[*job.rows],
    )


def login_run(state: State, program: Path, command: str, output: str) -> Recording:
    """Describe what a program printed on the login node of the test cluster."""
    versions = {"slurm": state.root["slurm"], "python": platform.python_version()}
    return new_run(program, command, output, where="process", versions=versions)


def check_entry(
    recorded: Callable[..., None],
    state: State,
    script: Path,
    command: str,
    output: str,
    essential: Iterable[str],
    status: int = 0,
    rows: Iterable[dict[str, str]] = (),
    masks: Iterable[Mask] = (),
) -> None:
    """Check that a script printed a line for each pattern; such lines have to be those of its recording.

    How often they come does not matter. Other generations than that of the recording may use other words.
    """
    essential = [*essential]
    for pattern in essential:
        assert re.search(pattern, output, re.MULTILINE), f"{script}: no line has {pattern}:\n{output}"
    run = job_run(state, script, FinishedJob("", [*rows], output, status), command=command)
    path = recording_path(script)
    home = not path.exists() or generation(read_recording(path)) == generation(run)
    keep = partial(re.search, "|".join(f"(?:{pattern})" for pattern in essential if home) or "(?!)")
    recorded(script, run, keep=keep, masks=masks, once=True)
