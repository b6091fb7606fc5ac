"""Give the processes of one job a name in common that no other job has, through the directory alone."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from srunbook.checkpoint import _manifest
from srunbook.checkpoint._directory import delete
from srunbook.checkpoint._errors import CheckpointError
from srunbook.checkpoint._files import write_small
from srunbook.checkpoint._reading import read_small
from srunbook.checkpoint._writers import LARGEST_NOTE, Writer

PLACE = ".meet-{}"
OFFER = "offer.json"
ACCEPTED = "accepted.json"
SAME_JOB = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
SAME_RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT")


def meet(directory: Path, process_id: int, num_processes: int, barrier: Callable[[], object]) -> str:
    """Agree on a name; all processes call this, and it calls `barrier` four times whatever happens.

    Process 0 offers a random name in a directory of its own. The others may see the offers of several jobs, and answer
    all of them with a random number. Its own processes have answered when process 0 looks, since a barrier lies
    between. So if it finds one answer of each process it is theirs, and it writes them down as accepted. A process
    whose answer is accepted belongs to it. Nothing is locked, so this works on shared file systems.

    Args:
        directory: The directory of the checkpoints.
        process_id: Number of this process.
        num_processes: Number of processes, 2 or more.
        barrier: A function that returns when all processes have called it.

    Returns:
        The name, 16 hexadecimal digits.

    Raises:
        CheckpointError: The processes did not find each other.
        OSError: The directory cannot be written.
    """
    if process_id == 0:
        return _offer(directory, num_processes, barrier)
    return _answer(directory, process_id, barrier)


def _offer(directory: Path, num_processes: int, barrier: Callable[[], object]) -> str:
    team = secrets.token_hex(8)
    place = directory / PLACE.format(team)
    problem: Exception | None = None
    try:
        place.mkdir()
        _write(place / OFFER)
    except OSError as error:
        problem = error
    barrier()
    barrier()
    if not problem:
        try:
            write_small(place / ACCEPTED, _manifest.seal({"answers": _answers(place, num_processes)}))
        except (CheckpointError, OSError) as error:
            problem = error
    barrier()
    barrier()
    with contextlib.suppress(OSError):
        delete(place)
    if problem:
        raise problem
    return team


def _answers(place: Path, num_processes: int) -> list[str]:
    names = os.listdir(place)  # noqa: PTH208 - names are enough
    found = [name for name in names if re.fullmatch(r"[0-9]+-[0-9a-f]{16}", name)]
    missing = set(range(1, num_processes)) - {int(name.split("-")[0]) for name in found}
    if missing:
        raise CheckpointError(
            f"process {min(missing)} of {num_processes} did not answer in {place.parent}, its own message says why; or "
            "it sees another directory"
        )
    if len(found) >= num_processes:
        who = [_writer(place / name) for name in sorted(found)]
        raise CheckpointError(
            f"processes of another job have answered in {place.parent}: there are {', '.join(map(str, who))}, for "
            f"{num_processes - 1} that should; give each job a directory of its own, or try again"
        )
    return found


def _answer(directory: Path, process_id: int, barrier: Callable[[], object]) -> str:
    answer = f"{process_id}-{secrets.token_hex(8)}"
    barrier()
    offers = _offers(directory)
    teams = [team for team, job in offers.items() if job == _job()] or list(offers)
    problems = []
    for team in teams:
        try:
            _write(directory / PLACE.format(team) / answer)
        except OSError as error:
            problems.append(error)
    barrier()
    barrier()
    mine = [team for team in teams if answer in _accepted(directory / PLACE.format(team))]
    barrier()
    if len(mine) == 1:
        return mine[0]
    if problems and len(problems) == len(teams):  # a single one may be that of a job which has met and left
        raise problems[0]
    raise CheckpointError(f"process 0 did not begin in {directory}, its own message says why")


def _offers(directory: Path) -> dict[str, object]:
    """Return the names that are offered, each with the job that it belongs to."""
    offers = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):  # noqa: PTH208 - names are enough
            if re.fullmatch(PLACE.format("[0-9a-f]{16}"), name):
                with contextlib.suppress(CheckpointError, OSError, KeyError):
                    offers[name.removeprefix(PLACE.format(""))] = _read(directory / name / OFFER)["job"]
    return offers


def _write(path: Path) -> None:
    write_small(path, _manifest.seal({"writer": asdict(Writer.here()), "job": _job()}))


def _writer(path: Path) -> Writer | str:
    try:
        return Writer.noted(_read(path)["writer"])
    except (CheckpointError, OSError, KeyError, ValueError, AttributeError):
        return "a process that left no name"


def _accepted(place: Path) -> list[str]:
    try:
        return list(_read(place / ACCEPTED, _manifest.LARGEST)["answers"])
    except (CheckpointError, OSError, KeyError, TypeError):
        return []


def _read(path: Path, largest: int = LARGEST_NOTE) -> dict[str, Any]:
    return _manifest.unseal(read_small(path, largest), str(path))


def _job() -> list[str]:
    """Return what is the same for all processes of a job, and for no other that runs, as far as it is known."""
    names = SAME_JOB if "SLURM_JOB_ID" in os.environ else SAME_RENDEZVOUS
    return [os.environ.get(name, "") for name in names]
