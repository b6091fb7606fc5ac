"""Check that the ranks ran where Slurm placed them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from srunbook.slurm import SlurmParseError, expand_hostlist
from srunbook.verify._artefacts import Artefacts
from srunbook.verify._causes import Cause
from srunbook.verify._launches import STEP
from srunbook.verify._matching import World
from srunbook.verify._report import Check, failed, not_proven, passed
from srunbook.verify._words import count, listed, print_it, silent
from srunbook.verify._world import NO_LINES


def check_hosts(artefacts: Artefacts, world: World) -> Check:
    """Check that the ranks ran on all nodes that the job was given, each step on its own, and on no other."""
    runs = world.runs
    if not runs:
        return not_proven("hosts", NO_LINES)
    if unsaid := silent(runs, "start", "host", [run.start.host for run in runs]):
        return not_proven("hosts", unsaid, print_it("start", "host"))
    try:
        given, problem = _given(artefacts)
        seen = list(dict.fromkeys(host for launch in world.launches for host in launch.hosts))
        wrong = "" if problem else _elsewhere(world, seen, given)
    except SlurmParseError as error:
        return not_proven("hosts", str(error))
    if problem:
        return not_proven("hosts", problem)
    helper = _helper(artefacts, seen, given) if wrong else ""
    if helper:
        return not_proven("hosts", helper, "give each component a job of its own, or let its ranks print their lines")
    if wrong:
        advice = "start the tasks on all nodes: srun --ntasks-per-node=N, without --nodes or -w of its own"
        return failed("hosts", Cause.HOSTS, wrong, advice)
    if not _known(seen, given):
        evidence = f"the ranks name {count(len(seen), 'host')}, {listed(seen)}, and Slurm the nodes {listed(given)}"
        return not_proven("hosts", evidence, "have every rank print the node's name of Slurm: host=$SLURMD_NODENAME")
    per_host = Counter(run.start.host for run in runs)
    return passed("hosts", ", ".join(f"{per_host[host]} on {host}" for host in seen[:8]))


def _given(artefacts: Artefacts) -> tuple[list[str], str]:
    """Return the nodes that the job was given, or why they are not known."""
    jobs = [row for row in artefacts.accounting.last if not row.step]
    given = list(dict.fromkeys(host for row in jobs for host in row.hosts))  # components may share a node
    if not jobs:
        return [], "sacct gave no rows"
    if not given:
        return [], "sacct names no nodes of the job"
    for row in {(row.nodes, row.node_list): row for row in artefacts.accounting.last if row.node_list}.values():
        if row.nodes not in (None, len(row.hosts)):
            return [], f"sacct counts {row.nodes} nodes and names {listed(row.hosts)}: ask again later"
    return given, ""


def _elsewhere(world: World, seen: Sequence[str], given: Sequence[str]) -> str:
    """Say which ranks ran on other nodes than those of the job or of their step; nothing where none did."""
    if not _agree(seen, given):
        both = len(world.runs) == 2 and len(seen) == 1
        ranks = "both ranks" if both else count(len(world.runs), "rank")
        return f"{ranks} ran on {listed(seen)}; the job was given {listed(given)}"
    for launch, step in world.matched:
        nodes = list(dict.fromkeys(expand_hostlist(step.node_list)))
        others = [node for node in nodes if node not in given]
        if others:
            return f"{step.identity} ran on {listed(others)}; the job was given {listed(given)}"
        if nodes and step.fits(launch) and not _agree(launch.hosts, nodes):
            ranks = f"{count(len(launch.runs), 'rank')} of {step.identity}"
            return f"{ranks} ran on {listed(launch.hosts)}; the step was given {listed(nodes)}"
        each = launch.world_size // step.tasks if step.tasks else 1
        per_host = Counter(run.start.host for run in launch.runs.values())
        uneven = next((host for host in launch.hosts if per_host[host] % each), None) if step.fits(launch) else None
        if uneven:
            ranks = f"{count(per_host[uneven], 'rank')} of {step.identity}"
            return f"{ranks} ran on {uneven}; each of its {count(step.tasks or 1, 'task')} started {each} ranks"
    return ""


def _helper(artefacts: Artefacts, seen: Sequence[str], given: Sequence[str]) -> str:
    """Say which components of a heterogeneous job may have run a step and no rank; nothing where that is no reason."""
    if len(artefacts.accounting.parts) > 1 and not _known(seen, given):
        return f"the ranks name other hosts than Slurm, {listed(seen)}, so which components they are of is unknown"
    quiet, busy = [], []
    for name, part in artefacts.accounting.parts.items():
        job, *steps = part.attempts[-1]
        ran = _known(seen, job.hosts)
        if "+" not in name or (not ran and not any(STEP.fullmatch(step.step) for step in steps)):
            return ""
        quiet += [] if ran else [name]
        busy += job.hosts if ran else []
    fits = quiet and busy and _agree(seen, list(dict.fromkeys(busy)))
    return f"{', '.join(quiet)} ran a step and no rank; the others ran ranks on all their nodes" if fits else ""


def _known(seen: Iterable[str], given: Iterable[str]) -> set[str]:
    """Return the names that are in both, without their domains."""
    return {name.split(".")[0] for name in given} & {name.split(".")[0] for name in seen}


def _agree(seen: Sequence[str], given: Sequence[str]) -> bool:
    """Tell whether these hosts can be these nodes: where no name is the same, the site names its hosts otherwise."""
    return len(seen) == len(given) and len(_known(seen, given)) in (0, len(seen))
