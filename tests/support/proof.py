"""What a job script has to show for itself on a real Slurm, and its run as a recording."""

from __future__ import annotations

import platform
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from recordings import Recording, read_recording, recording_path
from recordings.checking import generation, new_run
from recordings.comparing import Mask
from srunbook.cluster import FinishedJob, State
from srunbook.ranklog import RankStart, parse_rank_lines

ROOT = Path(__file__).resolve().parents[2]

PLACES = re.compile(r'(?<=")/\S*/(?=site-packages/|python3\.\d+/)|(?<=")/home/\w+/[\w.-]+/')
"""Folders of this machine and of the job in a traceback."""


def asked_for(script: Path) -> tuple[int, int, int | None]:
    """Return the nodes, tasks and ranks that a script asks for; None where it decides on the ranks when it runs."""
    text = script.read_text(encoding="utf-8")
    asked = {name: int(value) for name, value in re.findall(r"^#SBATCH --([\w-]+)=(\d+)\b", text, re.MULTILINE)}
    tasks = asked.get("ntasks") or asked.get("nodes", 1) * asked.get("ntasks-per-node", 1)
    # One task for each node starts several ranks there.
    launches_itself = "torchrun" in text or "accelerate launch" in text
    return asked.get("nodes", 1), tasks, None if launches_itself else tasks


def shortcomings(script: Path, job: FinishedJob) -> list[str]:
    """Return what is missing in a job's accounting and in the lines of its ranks."""
    problems = [
        f"{row['JobID']} is {row['State']} {row['ExitCode']}"
        for row in job.rows
        if (row["State"], row["ExitCode"]) != ("COMPLETED", "0:0")
    ]
    if not job.rows:
        problems.append("accounting knows nothing of the job")
    lines = job.output.splitlines()
    nodes, tasks, ranks = asked_for(script)
    speaking = {int(match[1]) for line in lines if (match := re.match(r"\s*\[?(\d+)[\]:] ", line))}
    if missing := set(range(tasks)) - speaking:
        problems.append(f"nothing was printed by rank {', '.join(map(str, sorted(missing)))} of {tasks}")
    records = parse_rank_lines(lines)
    if records:
        starts = [record for record in records if isinstance(record, RankStart)]
        sizes = {start.world_size for start in starts}
        size = ranks or max(sizes, default=tasks)
        if sizes != {size} or size % tasks:
            problems.append(f"world sizes {sorted(sizes)} were seen, and Slurm gave {tasks} tasks")
        hosts = {start.host for start in starts}
        if len(hosts) != nodes:
            problems.append(f"ranks started on {', '.join(sorted(hosts))}, and {nodes} nodes were asked for")
        ends = sorted(record.rank for record in records if not isinstance(record, RankStart))
        problems += [
            f"records {what} are of ranks {seen}, and there should be one of each of {size}"
            for what, seen in (("start", sorted(start.rank for start in starts)), ("end", ends))
            if seen != list(range(size)) and (seen or what == "start")  # the first programs say no end
        ]
    return problems


def job_run(
    state: State, script: Path, job: FinishedJob, arguments: Sequence[str] = (), *, command: str = ""
) -> Recording:
    """Describe the run of a script on the test cluster, as a job or on its login node, as a recording would."""
    text = script.read_text(encoding="utf-8")
    versions = {"slurm": state.root["slurm"]}
    if "singularity run" in text:
        versions["apptainer"] = state.root["versions"]["apptainer"].split("+")[0]
    else:
        versions["python"] = platform.python_version()
    guide = ROOT / "examples" / script.parent.name
    names = {f"{name}.py" for name in re.findall(r"\b([\w.-]+)\.py\b", text)}
    return new_run(
        script,
        command or shlex.join(["sbatch", script.name, *arguments]),
        PLACES.sub("", job.output),
        programs=[path for name in names for path in (script.with_name(name), *guide.rglob(name)) if path.exists()],
        where="slurm" if script.suffix == ".sbatch" else "process",
        exit_code=job.exit_status,
        versions=versions,
        plugins={name: state.plugins[name] for name in ("proctrack", "task")},
        accounting=[*job.rows],
    )


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
