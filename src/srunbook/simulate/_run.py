"""Run a simulation with one function."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from srunbook.simulate import _checks as checks
from srunbook.simulate._environment import (
    GENERATIONS,
    MARKER,
    Job,
    Task,
    base_environment,
    cpu_devices,
    step_environment,
)
from srunbook.simulate._errors import SimulationError
from srunbook.simulate._output import Collector, prepare_directory, write
from srunbook.simulate._processes import Ending, run_tasks
from srunbook.simulate._result import RankResult, Result, exit_status


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    nodes: int | None = None,
    ntasks_per_node: int | str = 1,
    cpus_per_task: int | None = None,
    gpus_per_node: int = 0,
    timeout: float | None = 60.0,
    output_dir: str | os.PathLike[str] | None = None,
    slurm: str = GENERATIONS[0],
    env: Mapping[str, str] | None = None,
    label: bool = True,
    echo: bool = False,
    kill_on_bad_exit: bool = True,
    keep_lines: int | None = None,
) -> Result:
    """Run a command as several processes, each with the environment that srun gives to a task.

    Args:
        argv: The command and its arguments.
        nodes: Number of nodes; by default as many as the layout has, else 1.
        ntasks_per_node: Tasks on each node: a number, or a layout such as `4(x2),3`.
        cpus_per_task: CPUs of each task, in the environment only. Like srun, set SLURM_CPUS_PER_TASK only where a
            number is given.
        gpus_per_node: GPUs of each node, 64 at most, in the environment only. JAX shows each task one CPU device for
            each GPU that it would have.
        timeout: Seconds after which all tasks are killed, or None.
        output_dir: Where the whole output of each task is written, as `rank-N.log`.
        slurm: Generation of Slurm whose environment is imitated: 22.05, 24.11 or 26.05.
        env: Further variables to set in all tasks; they take precedence over everything else.
        label: Whether lines of output begin with `[rank]`.
        echo: Whether output is also written to this process's streams as it comes; a line of more than 65,536
            characters in pieces, each on a line of its own.
        kill_on_bad_exit: Whether all tasks are killed when one fails.
        keep_lines: How many of the last lines of each task the result keeps, where every 65,536 characters of a longer
            line count as one; None for all, whole, in memory.

    Returns:
        How the tasks ended and what they printed. A task that fails is a result, not an exception.

    Raises:
        SimulationError: The simulation cannot be started as asked; nothing was run.
        OSError: A log file or the echo could not be written; all tasks were killed.
        RuntimeError: The supervisor was killed; so were the tasks, as far as they were found.
    """
    tasks_per_node, uniform = checks.task_layout(nodes, ntasks_per_node)
    checks.in_range("the number of CPUs per task", cpus_per_task, least=1, example="--cpus-per-task 2")
    checks.in_range(
        "the number of GPUs per node", gpus_per_node, least=0, most=checks.MAX_GPUS, example="--gpus-per-node 4"
    )
    checks.in_range("the time limit in seconds", timeout, least=0.001, example="--timeout 60")
    if slurm not in GENERATIONS:
        raise SimulationError(
            f"the Slurm generation is {slurm!r}; it is one of {', '.join(GENERATIONS)}, as in --slurm {GENERATIONS[0]}"
        )
    if output_dir is not None and not os.fspath(output_dir):
        raise SimulationError("the output directory is ''; it is the name of a directory, as in --output-dir logs")
    command = [os.fspath(argument) for argument in argv]
    directory = checks.current_directory()
    mark = os.urandom(16).hex()
    base = {"PYTHONUNBUFFERED": "1", **base_environment(os.environ)}
    program = checks.executable(command, {**base, **(env or {})}, directory)
    addresses, notices = checks.node_addresses(len(tasks_per_node))
    problem = checks.host_name_problem() if sum(tasks_per_node) > 1 else None
    notices += [text for text in (problem, checks.spare_from_proxy(base, addresses)) if text]
    logs = Path(output_dir) if output_dir is not None else None
    if logs:
        prepare_directory(logs)
    if echo:
        write(sys.stderr, (f"srunbook simulate: {notice}" for notice in notices))

    with checks.fresh_job_id(addresses) as job_id:
        job = Job(job_id, addresses, tasks_per_node, cpus_per_task, gpus_per_node, uniform, slurm, directory)
        tasks = job.tasks()
        environs = [
            {**step_environment(task), "JAX_NUM_CPU_DEVICES": str(cpu_devices(task)), **(env or {}), MARKER: mark}
            for task in tasks
        ]
        collectors = [Collector(task.rank, label=label, echo=echo, keep=keep_lines, directory=logs) for task in tasks]
        order = {
            "program": program,
            "argv": command,
            "directory": str(directory),
            "environ": base,
            "timeout": timeout,
            "kill_on_bad_exit": kill_on_bad_exit,
        }
        try:
            ending = run_tasks(order, environs, collectors, mark)
            for collector in collectors:
                collector.finish()
        finally:
            for collector in collectors:
                collector.close()
    ranks = _rank_results(tasks, ending, collectors)
    if ending.left:
        notices.append(f"could not be killed: process {', '.join(map(str, ending.left))}; is it another user's?")
    first = next((event["rank"] for event in ending.ended if event["status"] and not event["killed"]), None)
    return Result(
        returncode=exit_status(ranks, timed_out=ending.timed_out),
        ranks=ranks,
        first_failure=None if first is None else ranks[first],
        timed_out=ending.timed_out,
        timeout=timeout,
        job_id=job_id,
        notices=tuple(notices),
        label=label,
    )


def _rank_results(tasks: Sequence[Task], ending: Ending, collectors: Sequence[Collector]) -> tuple[RankResult, ...]:
    if not ending.done:
        raise RuntimeError(
            "the supervisor of the simulation was killed; what it ran was killed after it, as far as it was found"
        )
    events: dict[int, dict[str, Any]] = {event["rank"]: event for event in ending.ended}
    results = []
    for task, collector in zip(tasks, collectors, strict=True):
        event = events[task.rank]
        code = os.waitstatus_to_exitcode(event["status"])
        results.append(
            RankResult(
                rank=task.rank,
                node=task.node,
                returncode=code if code >= 0 else 128 - code,
                signal=-code if code < 0 else None,
                killed=event["killed"],
                seconds=event["seconds"],
                lines=tuple(collector.lines),
            )
        )
    return tuple(results)
