"""Which jobs the corpus has of real clusters: entries' scripts, and faults in the job scripts of the guides."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from helpers.corpus import GENERATIONS, Kind, drawn, half_of

from srunbook.explain import load_entries

ROOT = Path(__file__).resolve().parents[2]
FAILURES = ROOT / "examples" / "failures"
PROGRAMS = ROOT / "bench" / "corpus_programs"
"""Programs of the corpus alone: healthy ones that sound like failures, and failing ones that no entry describes."""

LAUNCHES = ("srun", "srun --label", "srun --label --kill-on-bad-exit=1", "srun --unbuffered")
BY_HAND = ("slurm-node-failure", "slurm-directive-ignored")
"""Scripts that need somebody who takes a node away, or that are told apart by a setting that a layout changes."""

ONE_LAYOUT = ("slurm-options-after-script", "slurm-step-waits", "slurm-log-overwritten", "slurm-log-empty")

HERE = ("--partition=batch", "--account=research", "--nodes=2")
"""What every guide's script is fitted to this site with; a fault that names one of these options wins."""


@dataclass(frozen=True)
class Scripted:
    """A script that is to be run on a cluster.

    Args:
        program: Its path in the repository.
        way: `shell`: typed commands; `refused`: sbatch says no; `waits`: it stays in the queue; `runs`: it ends.
        kind: What is to become of it.
        slurm: The generation.
        causes: Entries that explain it.
        fault: What is done to it; empty for nothing.
        options: Options of sbatch.
        edit: Changes the script.
        hurry: Whether its time ends as soon as it runs.
        cancel: Whether its user cancels it as soon as it runs.
        bare: Whether its programs are not beside it.
        turn: Which repetition it is.
    """

    program: str
    way: str
    kind: Kind
    slurm: str
    causes: tuple[str, ...] = ()
    fault: str = ""
    options: tuple[str, ...] = ()
    edit: Callable[[bytes], bytes] | None = None
    hurry: bool = False
    cancel: bool = False
    bare: bool = False
    turn: int = 0

    @property
    def name(self) -> str:
        """Return what tells it apart."""
        said = " ".join(self.options)
        return f"{self.program} | {self.fault or 'as it is'} | {said} | {self.slurm} | {self.turn}"


def dos(script: bytes) -> bytes:
    """Save it as an editor on Windows does."""
    return script.replace(b"\n", b"\r\n")


def empty(_script: bytes) -> bytes:
    """Save nothing, as a full disk does."""
    return b""


def without_first_line(script: bytes) -> bytes:
    """Leave out the line with the interpreter."""
    return script.partition(b"\n")[2]


def interpreter(path: bytes) -> Callable[[bytes], bytes]:
    """Return what names another interpreter."""
    return lambda script: b"#!" + path + b"\n" + script.partition(b"\n")[2]


def without_path(script: bytes) -> bytes:
    """Replace PATH below the directives."""
    lines = script.split(b"\n")
    place = max(number for number, line in enumerate(lines) if line.startswith(b"#SBATCH")) + 1
    return b"\n".join([*lines[:place], b"export PATH=$HOME/bin", *lines[place:]])


REFUSED: dict[str, tuple[str, ...]] = {
    "--partition=dgx-a100": ("gloo-unknown-partition",),
    "--partition=gpu_p5": ("gloo-unknown-partition",),
    "--account=bio-42": ("gloo-unknown-partition",),
    "--gres=tpu:2": ("slurm-invalid-gres",),
    "--gres=a100:4": ("slurm-invalid-gres",),
    "--gres=gpu:h100:2": ("slurm-node-configuration",),
    "--mem=6T": ("slurm-node-configuration",),
    "--qos=long": ("slurm-invalid-qos",),
    "--qos=gpu_4h": ("slurm-invalid-qos",),
    "--constraint=v100-32g": ("slurm-invalid-feature",),
    "--constraint=rome&ib": ("slurm-invalid-feature",),
    "--reservation=course-2026": ("slurm-reservation-invalid",),
    "--nodelist=nid[001234-001235]": ("slurm-invalid-node-name",),
    "--exclude=gpu-13": ("slurm-invalid-node-name",),
    "--array=0-9999": ("slurm-array-too-large",),
    "--array=1-2000%50": ("slurm-array-too-large",),
    "--partition=short --time=1-00:00:00": ("slurm-time-limit-invalid",),
    "--partition=small --nodes=2": ("slurm-too-many-nodes",),
    "--time=$HOURS:00:00": ("slurm-variable-in-directive",),
    "--ntask-per-node=4": ("slurm-unrecognized-option",),
    "--gpu-type=a100": ("slurm-unrecognized-option",),
    "--mem=1G --mem-per-cpu=1G": ("slurm-memory-options",),
    "--dependency=afterok:999999": ("slurm-dependency-problem",),
    "--partition=draining": ("slurm-partition-down",),
}
CLASHES = {
    "slurm-gpu-options": ("--gres=gpu", "#SBATCH --gpus-per-node"),
    "slurm-memory-options": ("--mem=6T", "#SBATCH --mem-per-cpu"),
}
"""Entries that explain what Slurm says where an option of the command line meets another one of the script."""

SPOILT: dict[str, tuple[Callable[[bytes], bytes], tuple[str, ...]]] = {
    "DOS line ends": (dos, ("slurm-dos-line-endings",)),
    "empty file": (empty, ("slurm-script-empty",)),
    "no interpreter": (without_first_line, ("slurm-no-batch-script",)),
}
WAITS: dict[str, tuple[str, ...]] = {
    "--begin=now+2hours": ("slurm-begin-time",),
    "--hold": ("slurm-job-held",),
    "--dependency=afterok:FAILED": ("slurm-dependency-never",),
    "--partition=closed": ("slurm-partition-down",),
    "--partition=later --nodes=1 --time=04:00:00": ("slurm-maintenance",),
}
TOO_LARGE = ("large_scale.sbatch", "data_parallel_container.sbatch")
"""Scripts that ask for more than the site has."""

LOG = ("--output=job_%j.out", "--error=job_%j.out")


def entries(generation: str) -> Iterator[Scripted]:
    """Yield the scripts of the entries."""
    known = load_entries()
    paths = sorted({*FAILURES.glob("slurm-*/*.sh"), *FAILURES.glob("slurm-*/*.sbatch")})
    paths.append(FAILURES / "gloo-unknown-partition" / "broken.sh")
    for path in paths:
        slug = path.parent.name
        entry = known[slug]
        named = bool(entry.messages) and entry.role != "warning"
        kind: Kind = "healthy" if path.stem == "fixed" else "failed" if named else "quiet"
        program = path.relative_to(ROOT).as_posix()
        causes = (slug,) if kind == "failed" else ()
        if slug in BY_HAND or generation not in GENERATIONS[half_of(program)]:
            continue
        if path.suffix == ".sh":
            yield Scripted(program, "shell", kind, generation, causes)
            continue
        one = Scripted(program, "runs", kind, generation, causes, hurry=slug == "slurm-time-limit")
        if slug in ONE_LAYOUT:
            yield one
            continue
        for turn in range(4 if kind == "healthy" else 3):
            nodes, tasks = str(1 + turn % 2), drawn(f"tasks {program} {generation} {turn}", ["1", "2", "4"])
            tasks = "1" if slug == "slurm-out-of-memory" and kind == "healthy" else tasks
            yield replace(one, options=(f"--nodes={nodes}", f"--ntasks-per-node={tasks}"), turn=turn)


def programs(generation: str) -> Iterator[Scripted]:
    """Yield the corpus's own programs, as far as they need no library."""
    for path in sorted(PROGRAMS.glob("*/*.py")):
        program = path.relative_to(ROOT).as_posix()
        half = half_of(program)
        if generation not in GENERATIONS[half] or re.search(
            "^import (?:jax|numpy|torch)", path.read_text("utf-8"), re.M
        ):
            continue
        kind: Kind = "healthy" if path.parent.name == "healthy" else "unknown"
        turns = (4 if kind == "healthy" else 2) // len(GENERATIONS[half])
        for turn in range(turns):
            draw = f"{program} {generation} {turn}"
            launch, tasks = drawn(f"launch {draw}", LAUNCHES), drawn(f"tasks {draw}", ["1", "2", "4"])
            layout = (f"--nodes={1 + turn % 2}", f"--ntasks-per-node={tasks}", "--cpus-per-task=1", "--mem=500M")
            wrapped = f"--wrap={launch} python3 {path.name}"
            yield Scripted(program, "runs", kind, generation, options=(*layout, *LOG, wrapped), turn=turn)


def some(faults: Iterable[str], count: int, draw: str) -> list[str]:
    """Choose some faults for a script."""
    numbers = [f"{number:04}" for number in range(10_000)]
    return sorted(faults, key=lambda fault: drawn(f"{fault} {draw}", numbers))[:count]


def guides(generation: str) -> Iterator[Scripted]:
    """Yield faults in the job scripts of the guides."""
    for path in sorted((ROOT / "slurm").glob("*/*.sbatch")):
        program = path.relative_to(ROOT).as_posix()
        half = half_of(program)
        if generation not in GENERATIONS[half] or path.name in TOO_LARGE:
            continue
        more = 2 // len(GENERATIONS[half])  # a half with one generation has as many jobs
        draw = f"{program} {generation}"
        one = Scripted(program, "refused", "failed", generation)
        text = path.read_text(encoding="utf-8")
        for fault in some(REFUSED, 4 * more, draw):
            clashes = [slug for slug, (option, other) in CLASHES.items() if option in fault and other in text]
            yield replace(one, causes=(*REFUSED[fault], *clashes), fault=fault, options=tuple(fault.split()))
        for fault in some(SPOILT, more, draw):
            edit, causes = SPOILT[fault]
            yield replace(one, causes=causes, fault=fault, edit=edit)
        for fault in some(WAITS, more, draw):
            yield replace(one, way="waits", causes=WAITS[fault], fault=fault, options=tuple(fault.split()))
        ended = replace(one, way="runs", options=LOG)
        folder = ("--output=/results/%j.out", "--error=/results/%j.err")
        yield replace(ended, fault="no folder for the log", options=folder, causes=("slurm-output-folder",))
        zsh = interpreter(drawn(draw, ["/bin/zsh", "/usr/local/bin/bash"]).encode())
        yield replace(ended, fault="another interpreter", edit=zsh, causes=("slurm-bad-interpreter",))
        yield replace(ended, fault="PATH replaced", edit=without_path, causes=("slurm-command-not-found",))
        if re.search("singularity|apptainer", path.read_text(encoding="utf-8")):
            continue  # this site has no containers
        yield replace(ended, fault="60 MB of memory", options=(*LOG, "--mem=60M"), causes=("slurm-out-of-memory",))
        away = ("--chdir=/data/run17", "--output=HOME/job_%j.out", "--error=HOME/job_%j.out")
        yield replace(ended, fault="no such folder to run in", options=away, causes=("slurm-chdir",))
        yield replace(ended, fault="cancelled", cancel=True, kind="unknown")
        yield replace(ended, fault="time is up", hurry=True, causes=("slurm-time-limit",))
        yield replace(ended, fault="no program beside it", bare=True, kind="unknown")
        yield replace(ended, kind="healthy")


HEAVY = ("time is up", "cancelled", "60 MB of memory", "no such folder to run in", "no program beside it", "")
"""Faults that come after programs have started: these jobs are last."""


def plan(generation: str) -> list[Scripted]:
    """Return all jobs of a generation, in an order that mixes scripts; those that compute come last."""
    found = {one.name: one for one in [*entries(generation), *programs(generation), *guides(generation)]}

    def place(one: Scripted) -> tuple[int, str]:
        guide = one.program.startswith("slurm/")
        heavy = HEAVY.index(one.fault) + 1 if guide and one.way == "runs" and one.fault in HEAVY else 0
        return heavy, drawn(one.name, [f"{number:04}" for number in range(10_000)])

    return sorted(found.values(), key=place)
