"""Put rank lines together: the run of a rank from its start to its end, and the ranks that were launched together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from srunbook.ranklog import RankEnd, RankStart
from srunbook.slurm import Accounting, SacctRow, SlurmParseError, leading_number
from srunbook.verify._logs import Log


@dataclass(frozen=True)
class RankRun:
    """A rank from its start to its end.

    Args:
        start: Its start line.
        end: Its end line, or None without one.
        log: Name of the log that holds them.
        began: Place of the start line among the rank lines of the log.
        ended: Place of the end line.
    """

    start: RankStart
    end: RankEnd | None
    log: str
    began: int = 0
    ended: int = 0


@dataclass
class Launch:
    """The ranks of one world that were started together.

    Args:
        world_size: Number of ranks that they say there are.
        runs: The runs by rank.
        sure: Whether they are known to be of one launch: logs of several ranks do not tell which attempt they are of.
    """

    world_size: int
    runs: dict[int, RankRun] = field(default_factory=dict)
    sure: bool = True

    @property
    def began(self) -> int:
        """Return the place of its first start line."""
        return min(run.began for run in self.runs.values())

    @property
    def hosts(self) -> list[str]:
        """Return the names of its hosts, in the order of the ranks."""
        starts = [self.runs[rank].start for rank in sorted(self.runs)]
        return list(dict.fromkeys(start.host for start in starts if start.host is not None))


@dataclass(frozen=True)
class Found:
    """What the rank lines of a job amount to.

    Args:
        launches: The launches, in the order of the log, without those that were begun anew.
        strays: End lines of ranks that had not started, or had ended already, each with the name of its log.
        late: The same for ends of an earlier run of a rank, where a later one had begun.
        repeated: Ranks that were begun anew while others were not, with the number of times.
        at_once: Pairs of launches of which one process of a rank began and ended within the time of another, with the
            rank and the name of the log.
    """

    launches: list[Launch]
    strays: list[tuple[RankEnd, str]]
    late: list[tuple[RankEnd, str]]
    repeated: list[tuple[int, int]]
    at_once: list[tuple[Launch, Launch, int, str]] = field(default_factory=list)


def find_launches(logs: Iterable[Log]) -> Found:
    """Pair the start and end lines of each rank, and the ranks of each launch.

    The first start lines of all ranks of a world make its first launch, the second ones make the next. Where a
    launcher, or Slurm, began a world anew before it had ended, only the new launch is kept.
    """
    worlds: dict[int, list[Launch]] = {}
    strays: list[tuple[RankEnd, str]] = []
    late: list[tuple[RankEnd, str]] = []
    begun: Counter[tuple[int, int]] = Counter()
    at_once: dict[tuple[int, int], tuple[Launch, Launch, int, str]] = {}
    for log in logs:
        open_runs: dict[int, dict[int, list[Launch]]] = {}
        ended: dict[int, Launch] = {}
        for place, line in enumerate(log.rank_lines):
            waiting = open_runs.setdefault(line.rank, {})
            if isinstance(line, RankStart):
                launches, number = worlds.setdefault(line.world_size, []), begun[line.world_size, line.rank]
                begun[line.world_size, line.rank] += 1
                if number == len(launches):
                    launches.append(Launch(line.world_size))
                launches[number].runs[line.rank] = RankRun(line, None, log.name, place)
                waiting.setdefault(line.world_size, []).append(launches[number])
                continue
            size = line.world_size if line.world_size in waiting else next(reversed(waiting), None)
            if size is None:
                strays.append((line, log.name))
                continue
            launch = waiting[size].pop()
            if launch is not worlds[size][begun[size, line.rank] - 1]:
                late.append((line, log.name))
            if not waiting[size]:
                del waiting[size]
            launch.runs[line.rank] = run = replace(launch.runs[line.rank], end=line, ended=place)
            before = ended.setdefault(line.rank, launch)
            if run.log == log.name and before.runs[line.rank].began > run.began:
                at_once.setdefault((id(launch), id(before)), (launch, before, line.rank, log.name))
            else:
                ended[line.rank] = launch
    repeated: list[tuple[int, int]] = []
    kept = [launch for launches in worlds.values() for launch in _without_superseded(launches, begun, repeated)]
    return Found(sorted(kept, key=lambda launch: launch.began), strays, late, repeated, list(at_once.values()))


def _without_superseded(
    launches: Sequence[Launch], begun: Mapping[tuple[int, int], int], repeated: list[tuple[int, int]]
) -> list[Launch]:
    """Leave out launches of one world that were begun anew.

    A rank that ended after the others had begun anew is one of the new launch: of the old one it printed no line.
    """
    kept = []
    for launch, following in zip(launches, [*launches[1:], None], strict=True):
        again = [rank for rank, run in launch.runs.items() if run.end is None and following and rank in following.runs]
        if following is None or not again:
            kept.append(launch)
            continue
        for rank, run in list(launch.runs.items()):
            if rank in following.runs or run.end is None:
                continue
            others = [other.began for other in following.runs.values() if other.log == run.log]
            if not others or run.ended > min(others):
                following.runs[rank] = launch.runs.pop(rank)
                following.sure = following.sure and bool(others)
        if len(launch.runs) < launch.world_size:
            repeated.append((again[0], begun[launch.world_size, again[0]]))
    return kept


STEP = re.compile(r"([0-9]+)(?:\+[0-9]+)?")


@dataclass(frozen=True)
class Step:
    """A step that srun started, or all components of it together.

    Args:
        identity: Its number, such as `17.0`.
        tasks: Number of its tasks, or None where sacct does not say.
        nodes: Number of its nodes, or None.
        node_list: Host list of its nodes, or nothing.
        age: Number of attempts after its own: 0 for a step of the last one.
        helps: Whether it has one task on each node of the job but the first, as the daemons of mpirun have.
    """

    identity: str
    tasks: int | None = None
    nodes: int | None = None
    node_list: str = ""
    age: int = 0
    helps: bool = False

    def fits(self, launch: Launch) -> bool:
        """Tell whether its tasks can be these ranks: one each, or each task a launcher of equally many."""
        enough = self.nodes is None or len(launch.hosts) <= self.nodes
        return enough and (self.tasks is None or launch.world_size % self.tasks == 0)

    def may_help(self, launch: Launch) -> bool:
        """Tell whether mpirun, on the first node, may have started these ranks with its help."""
        return self.helps and self.tasks is not None and launch.world_size > self.tasks >= len(launch.hosts) - 1


def srun_steps(accounting: Accounting) -> list[list[Step]]:
    """Return the steps that srun started, in each way in which components of one number may belong together.

    Components of a heterogeneous job number their steps by themselves: `56+0.0` and `56+1.0` may be one step on both,
    or two steps.
    """
    rows: list[tuple[int, SacctRow]] = []
    apart: list[Step] = []
    for part in accounting.parts.values():
        for age, attempt in enumerate(reversed(part.attempts)):
            steps = [row for row in attempt if STEP.fullmatch(row.step)]
            rows += [(age, row) for row in steps]
            apart += [_step(row, age, attempt[0]) for row in steps]
    together: dict[tuple[int, str], list[SacctRow]] = {}
    for age, row in rows:
        number = row.step.partition("+")[0]
        job = leading_number(row.job_id) if "+" in row.job_id else row.job_id
        together.setdefault((age, f"{job}.{number}"), []).append(row)
    if len(together) == len(apart):
        return [apart]
    return [apart, [_joined(name, age, parts) for (age, name), parts in together.items()]]


def _step(row: SacctRow, age: int, job: SacctRow) -> Step:
    helps = row.tasks is not None and row.tasks == row.nodes == (job.nodes or 0) - 1
    try:
        helps = helps and row.hosts == job.hosts[1:]
    except SlurmParseError:
        helps = False
    return Step(row.identity, row.tasks or None, row.nodes, row.node_list, age, helps)


def _joined(name: str, age: int, rows: Sequence[SacctRow]) -> Step:
    def total(values: Sequence[int | None]) -> int | None:
        return None if None in values else sum(value or 0 for value in values) or None

    nodes = ",".join(filter(None, (row.node_list for row in rows)))
    return Step(name, total([row.tasks for row in rows]), total([row.nodes for row in rows]), nodes, age)
