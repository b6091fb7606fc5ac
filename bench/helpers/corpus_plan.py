"""Which jobs the corpus has of the simulation: entries' programs, and faults in programs of the guides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from helpers.corpus import GENERATIONS, Kind, drawn, half_of
from support.reader import Reader

from srunbook.explain import load_entries

ROOT = Path(__file__).resolve().parents[2]
FAILURES = ROOT / "examples" / "failures"

ANY = (2, 3, 4, 6, 8)
SOME = (2, 3, 4)
RANKS = {
    "checkpoint-all-ranks-write": SOME,
    "checkpoint-module-prefix": SOME,
    "data-open-files": (1, 2, 3),
    "data-shared-memory": (1, 2, 3),
    "data-spawn-lambda": (1, 2, 3),
    "data-spawn-main": (1, 2),
    "data-worker-killed": (1, 2, 3),
    "ddp-mismatched-collectives": SOME,
    "ddp-monitored-barrier": SOME,
    "ddp-parameter-shapes": ANY,
    "ddp-sync-batchnorm": ANY,
    "ddp-unused-parameters": ANY,
    "jax-deleted-array": (1, 2, 3),
    "jax-incompatible-devices": SOME,
    "jax-initialize-deadline": SOME,
    "jax-initialize-too-late": SOME,
    "jax-mesh-devices": (2, 3),
    "jax-non-addressable-array": SOME,
    "jax-peer-lost": SOME,
    "jax-proxy-variables": SOME,
    "jax-rank-exception-hangs": SOME,
    "lightning-devices-mismatch": (2, 3),
    "parallel-gloo-lacks": SOME,
    "parallel-mesh-world": (2, 3),
    "parallel-state-dict-one-rank": SOME,
    "parallel-view-inplace": SOME,
    "parallel-wrapping-order": ANY,
    "svgd-coordinator-timeout": SOME,
    "svgd-not-divisible": (2, 4),
    "torch-master-unreachable": SOME,
    "torch-out-of-memory": (1, 2, 4, 8),
    "torch-peer-died": ANY,
    "torch-rank-env-missing": ANY,
}
"""For programs that fail alike with more than their two ranks, or their one process: with how many."""

ENDS_WELL = ("lightning-sigterm",)
"""Failures whose programs end with status 0."""

NOT_HERE = ("jax-does-not-scale", "parallel-all-gather-memory", "torch-agent-late")
"""One that measures, one that counts on how much memory an interpreter has taken, and one that takes a minute."""


@dataclass(frozen=True)
class Planned:
    """A job that is to be run in the simulation.

    Args:
        program: Its path in the repository.
        words: The command, whose first word is python or torchrun; PORT in it is one that is free.
        kind: What is to become of it.
        causes: Entries that explain it.
        fault: As CORPUS_FAULT; empty for none.
        environment: Further variables.
        slurm: The generation of Slurm whose environment it gets; empty for a plain process.
        nodes: Nodes.
        tasks: Tasks on each node.
        kill: Whether the others are killed when one fails.
        turn: Which repetition it is.
    """

    program: str
    words: tuple[str, ...]
    kind: Kind
    causes: tuple[str, ...] = ()
    fault: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    slurm: str = ""
    nodes: int = 1
    tasks: int = 1
    kill: bool = True
    turn: int = 0

    @property
    def name(self) -> str:
        """Return what tells it apart."""
        done = " ".join([self.fault, *(f"{name}={value}" for name, value in self.environment)]).strip() or "as it is"
        layout = f"{self.nodes} x {self.tasks}{'' if self.words[0] == 'python' else ' ' + ' '.join(self.words[1:-1])}"
        return f"{self.program} | {done} | {layout} | {self.slurm or 'no Slurm'} | {self.turn}"


def spread(ranks: int, name: str) -> tuple[int, int]:
    """Choose nodes and tasks on each for a number of ranks."""
    nodes = int(drawn(f"nodes {name}", [str(count) for count in (1, 2, 3, 4) if ranks % count == 0]))
    return nodes, ranks // nodes


def generation(program: str, turn: int) -> str:
    """Return the generation of Slurm for a repetition."""
    chosen = GENERATIONS[half_of(program)]
    return chosen[turn % len(chosen)]


def laid_out(planned: Planned, ranks: Sequence[int]) -> Planned:
    """Give a job nodes, tasks and a generation, drawn by its program, fault and turn."""
    draw = f"{planned.program} {planned.fault} {planned.environment} {planned.turn}"
    nodes, tasks = spread(int(drawn(draw, [str(count) for count in ranks])), draw)
    return replace(planned, slurm=generation(planned.program, planned.turn), nodes=nodes, tasks=tasks)


def entries(turn: int) -> Iterator[Planned]:
    """Yield the programs of the entries, broken and mended."""
    known = load_entries()
    for path in sorted(FAILURES.glob("*/*.py")):
        slug, commands = path.parent.name, Reader.commands(path)
        if path.stem not in ("broken", "fixed") or slug in NOT_HERE or not commands:
            continue
        options, _, words = commands[0].rpartition(" -- ")
        entry = known[slug]
        named = bool(entry.messages) and entry.role != "warning"
        kind: Kind = "healthy" if path.stem == "fixed" else "failed" if named else "quiet"
        planned = Planned(
            program=path.relative_to(ROOT).as_posix(),
            words=tuple(words.replace("127.0.0.1:29400", "127.0.0.1:PORT").split()),
            kind=kind,
            causes=(slug,) if kind == "failed" else (),
            kill="--no-kill-on-bad-exit" not in options,
            turn=turn,
        )
        layout = Reader.layout(options.split()[2:]) if options else {}
        ranks = RANKS.get(slug, ()) if path.stem == "broken" else ()
        if ranks and words.startswith("python"):
            yield laid_out(planned, ranks)
        elif options and "gpus_per_node" not in layout:
            nodes, tasks = layout.get("nodes", 1), layout.get("ntasks_per_node", 1)
            yield replace(planned, slurm=generation(planned.program, turn), nodes=nodes, tasks=tasks)
        elif not options:
            yield planned


EXAMPLES = ROOT / "examples"
STEPPING = ("gloo_ddp/ddp_cpu.py", "gloo_ddp/resume.py", "gloo_ddp/timed.py")
TORCHRUN = (
    "torchrun/ddp.py",
    "torchrun/resume.py",
    "torchrun/mixed_precision.py",
    "torchrun/validate_ddp.py",
    "torchrun/requeue.py",
    "does_not_fit/ddp.py",
    "does_not_fit/fsdp.py",
)
LIGHTNING = ("lightning/ddp.py", "lightning/srun_ddp.py")
JAX = (
    "jax_multinode/query_v1.py",
    "jax_multinode/data_parallel.py",
    "jax_multinode/allreduce_modern.py",
    "jax_multinode/less_memory.py",
    "jax_multinode/resume.py",
    "jax_multinode/train_data_parallel.py",
)
MISTAKES = ("value", "key", "file", "zero", "index", "import", "disk", "assert")
STRANGE_INTERFACES = ("ib0", "^docker,lo", "hsn0", "bond0.100")


PROGRAMS = ROOT / "bench" / "corpus_programs"
"""Programs of the corpus alone: healthy ones that sound like failures, and failing ones that no entry describes."""

NEEDS_ACCOUNTING = ("handled_exceptions",)
"""Healthy programs whose log alone looks like that of a failure: only Slurm can say that they ended well."""


def programs(turn: int) -> Iterator[Planned]:
    """Yield the corpus's own programs: a process, a step of Slurm, torchrun."""
    for path in sorted(PROGRAMS.glob("*/*.py")):
        if path.stem in NEEDS_ACCOUNTING:
            continue
        kind: Kind = "healthy" if path.parent.name == "healthy" else "unknown"
        planned = Planned(path.relative_to(ROOT).as_posix(), ("python", path.name), kind, turn=turn)
        yield laid_out(planned, ANY)
        if kind == "healthy":
            yield planned
            yield laid_out(
                replace(planned, words=("torchrun", "--standalone", "--nproc-per-node", "3", path.name)), (1,)
            )


def mistaken(sound: Planned, mistake: str, place: str) -> Planned:
    """Return a program that makes a mistake which no entry describes, but for a module that is missing."""
    causes = ("shell-wrong-environment",) if mistake == "import" else ()
    return replace(sound, fault=f"raise-{mistake}:{place}", kind="failed" if causes else "unknown", causes=causes)


def of_guide(name: str, words: Sequence[str], turn: int, ranks: Sequence[int]) -> Iterator[Planned]:
    """Yield a program of a guide as it is, and with faults that every framework can have."""
    path = f"examples/{name}"
    sound = Planned(path, (*words, Path(name).name), "healthy", turn=turn)
    draw = f"{path} {turn}"
    victim, step = drawn(f"victim {draw}", ["0", "1"]), drawn(f"step {draw}", ["meet", "1", "2", "4"])
    step = "start" if name in JAX else step  # later, JAX would wait five minutes for the others at its end
    yield laid_out(sound, ranks)
    for mistake in {drawn(f"mistake {number} {draw}", MISTAKES) for number in range(2)}:
        yield laid_out(replace(mistaken(sound, mistake, f"{victim}:{step}"), kill=name in JAX), ranks)


def with_torch(name: str, words: Sequence[str], turn: int, ranks: Sequence[int]) -> Iterator[Planned]:
    """Yield what torch's programs can suffer besides."""
    path = f"examples/{name}"
    draw = f"{path} {turn}"
    victim, step = drawn(f"victim {draw}", ["0", "1"]), drawn(f"step {draw}", ["1", "2", "4"])
    sound = Planned(path, (*words, Path(name).name), "failed", turn=turn, kill=False)
    for fault, causes in {
        f"kill:{victim}:{step}": ("torch-peer-died",),
        f"leave:{victim}:{step}": ("torch-peer-died",),
        f"memory:{victim}:{step}": ("torch-out-of-memory",),
        f"memory:{victim}:meet": ("torch-out-of-memory",),
        f"late:{victim}:{step}": ("torch-uneven-batches",),
        "nccl:*:start": ("torch-nccl-without-gpu",),
        "files:*:start": ("nodes-open-files",),
    }.items():
        kill = fault.startswith("files")  # the others would wait for half an hour
        yield laid_out(replace(sound, fault=fault, causes=causes, kill=kill), ranks)
    if words[0] == "torchrun":
        yield laid_out(replace(sound, fault="no-rank:*:start", causes=("torch-rank-env-missing",)), ranks)
    interface = drawn(f"interface {draw}", STRANGE_INTERFACES)
    environment = (("GLOO_SOCKET_IFNAME", interface),)
    yield laid_out(replace(sound, environment=environment, causes=("torch-interface-wrong",)), ranks)


def with_jax(name: str, turn: int, ranks: Sequence[int]) -> Iterator[Planned]:
    """Yield what JAX's programs can suffer besides."""
    sound = Planned(f"examples/{name}", ("python", Path(name).name), "failed", turn=turn, kill=False)
    for fault, causes in {
        "memory:*:meet": ("jax-out-of-memory", "svgd-out-of-memory"),
        "devices-first:*:start": ("jax-initialize-too-late",),
        "ports:*:start": ("jax-initialize-deadline",),
        "proxy:*:start": ("jax-proxy-variables",),
        "no-slurm:*:start": ("jax-no-cluster-detected",),
    }.items():
        yield laid_out(replace(sound, fault=fault, causes=causes), ranks)


def guides(turn: int) -> Iterator[Planned]:
    """Yield programs of the guides."""
    for name in STEPPING:
        yield from of_guide(name, ["python"], turn, SOME)
        yield from with_torch(name, ["python"], turn, SOME)
    for name in TORCHRUN:
        each = int(drawn(f"each {name} {turn}", ["2", "3", "4"]))
        words = ["torchrun", "--standalone", "--nproc-per-node", str(each)]
        yield from of_guide(name, words, turn, (1,))
        yield from with_torch(name, words, turn, (1,))
    for name in LIGHTNING:
        sound = Planned(f"examples/{name}", ("python", Path(name).name), "failed", turn=turn)
        sound = replace(sound, slurm=generation(sound.program, turn), tasks=2)
        yield replace(sound, kind="healthy")
        for fault, causes in {
            "terminate:1:2": ("lightning-sigterm",),
            "memory:1:2": ("torch-out-of-memory",),
            "no-tasks-per-node:*:import": ("lightning-ntasks",),
        }.items():
            yield replace(sound, fault=fault, causes=causes, kill=False)
        yield replace(sound, tasks=3, causes=("lightning-devices-mismatch",))
        yield replace(mistaken(sound, drawn(f"{name} {turn}", MISTAKES), "1:2"), kill=False)
    for name in JAX:
        yield from of_guide(name, ["python"], turn, SOME)
        yield from with_jax(name, turn, SOME)


def plan(turns: int) -> list[Planned]:
    """Return all jobs: one turn after the other, each in an order that mixes programs, so that any part is a sample."""
    found: dict[str, Planned] = {}
    for turn in range(turns):
        mixed = [*entries(turn), *programs(turn), *guides(turn)]
        order = {planned.name: drawn(planned.name, [f"{number:04}" for number in range(10_000)]) for planned in mixed}
        found |= {planned.name: planned for planned in sorted(mixed, key=lambda one: order[one.name])}
    return list(found.values())


def changed(source: str, ranks: int) -> str:
    """Return an entry's program for another number of ranks than the two that it names."""
    return re.sub(r"\bworld_size=2\b", f"world_size={ranks}", source)
