"""Find the world of each step that Slurm started: which ranks were launched together, and by which step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from srunbook.verify._artefacts import Artefacts
from srunbook.verify._launches import Found, Launch, RankRun, Step, find_launches, srun_steps


@dataclass(frozen=True)
class World:
    """The launches of the last attempt, and the steps that they were.

    Args:
        found: What the rank lines amount to.
        matched: Each launch with its step, in the order of the log.
        surplus: Launches that no step accounts for.
        silent: Steps without a launch.
        steps: All steps of the last attempt.
        attempts: How often Slurm started the job.
    """

    found: Found
    matched: list[tuple[Launch, Step]]
    surplus: list[Launch]
    silent: list[Step]
    steps: list[Step]
    attempts: int

    @property
    def launches(self) -> list[Launch]:
        """Return all launches that are judged."""
        return [*(launch for launch, _ in self.matched), *self.surplus]

    @property
    def runs(self) -> list[RankRun]:
        """Return the runs of these launches."""
        return [run for launch in self.launches for _, run in sorted(launch.runs.items())]


def find_world(artefacts: Artefacts) -> World:
    """Find the launches in the logs of a job, and the step that each of them was."""
    found = find_launches(artefacts.logs)
    own = [
        launch
        for launch in found.launches
        if not all(artefacts.is_foreign(run.start.job) for run in launch.runs.values())
    ]
    if own and own[-1] is found.launches[-1]:  # an earlier job wrote into the same log, and this one went on in it
        found = replace(found, launches=own)
    attempts = max((len(part.attempts) for part in artefacts.accounting.parts.values()), default=1)
    ways = [steps or [Step("")] for steps in srun_steps(artefacts.accounting)]
    worlds = [_match(found, steps, attempts) for steps in ways]
    return min(worlds, key=lambda world: (len(world.surplus), sum(step.tasks or 0 for step in world.silent)))


def _match(found: Found, steps: Sequence[Step], attempts: int) -> World:
    """Find a step for each launch, the last launch first, and leave out launches of earlier attempts."""
    last = [step for step in steps if step.age == 0]
    left = list(steps) if last else []
    matched: list[tuple[Launch, Step]] = []
    surplus: list[Launch] = []
    for launch in reversed(found.launches):
        fitting = [step for step in reversed(left) if step.fits(launch)]
        fitting = fitting or [step for step in reversed(left) if step.may_help(launch)]
        if fitting:
            step = max(fitting, key=lambda step: (step.tasks == launch.world_size, step.tasks or 0, -step.age))
            left = [other for other in left if other is not step and other.age >= step.age]
            matched.append((launch, step))
        elif last and (attempts == 1 or not matched):
            surplus.append(launch)
    now = [(launch, step) for launch, step in reversed(matched) if step.age == 0]
    taken = [step for _, step in now]
    return World(found, now, surplus[::-1], [step for step in last if step not in taken], last, attempts)
