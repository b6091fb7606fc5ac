"""Run a simulation with one function, and say how each task ended and what it printed."""

from __future__ import annotations

import contextlib
import os
import signal as signals
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from srunbook.simulate import _checks as checks
from srunbook.simulate._checks import SimulationError
from srunbook.simulate._environment import GENERATIONS, Job, base_environment, cpu_devices, step_environment
from srunbook.simulate._processes import Collector, Ending, run_tasks, write

TIMED_OUT = 124
"""Exit status of a simulation that ran out of time, as that of timeout(1)."""

LAST_LINES = 20
"""How many lines of a failed rank are shown again."""

LAST_CHARACTERS = 2000
"""How much of each of these lines is shown."""


@dataclass(frozen=True)
class RankResult:
    """How one task ended.

    Args:
        rank: Its rank, from 0.
        node: Name of its node.
        returncode: Its exit status, or 128 and the number of the signal that ended it.
        signal: Number of that signal, or None.
        killed: Whether the simulation killed it, because another task failed or the time limit was reached.
        seconds: How long it ran, in seconds.
        lines: What it printed: each line with the name of its stream, `stdout` or `stderr`.
    """

    rank: int
    node: str
    returncode: int
    signal: int | None
    killed: bool
    seconds: float
    lines: tuple[tuple[str, str], ...]

    @property
    def output(self) -> str:
        """What it printed on both streams, in the order of arrival."""
        return "\n".join(line for _, line in self.lines)

    @property
    def stdout(self) -> str:
        """What it printed on standard output."""
        return "\n".join(line for stream, line in self.lines if stream == "stdout")

    @property
    def stderr(self) -> str:
        """What it printed on standard error."""
        return "\n".join(line for stream, line in self.lines if stream == "stderr")

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        if self.signal is None:
            return f"exited with status {self.returncode}"
        try:
            name = signals.Signals(self.signal).name
        except ValueError:
            name = "an unnamed signal"
        return f"was ended by signal {self.signal} ({name})"


@dataclass(frozen=True)
class Result:
    """How all tasks ended.

    Args:
        returncode: Exit status of the simulation, as `exit_status` makes it.
        ranks: The tasks in the order of their ranks.
        first_failure: The task that failed first by itself, or None.
        timed_out: Whether the time limit was reached.
        timeout: The time limit in seconds, or None.
        job_id: The simulated job's id.
        notices: Warnings, from before the start, about what may go wrong later.
        label: Whether `output` shows the rank of each line.
    """

    returncode: int
    ranks: tuple[RankResult, ...]
    first_failure: RankResult | None
    timed_out: bool
    timeout: float | None
    job_id: int
    notices: tuple[str, ...] = ()
    label: bool = True

    @property
    def output(self) -> str:
        """What all tasks printed, one rank after the other."""
        return "\n".join(
            f"[{rank.rank}] {line}" if self.label else line for rank in self.ranks for _, line in rank.lines
        )

    @property
    def failure(self) -> str:
        """What went wrong, with the last lines of the task that failed first. Empty after success."""
        if self.returncode == 0:
            return ""
        if self.first_failure:
            first = self.first_failure
            text = f"rank {first.rank} on {first.node} {first.ending} after {first.seconds:.1f} s"
            others = sum(rank.killed for rank in self.ranks)
            text += f"; {others} other{'s were' if others > 1 else ' was'} killed" if others else ""
        else:
            text = ""
        if self.timed_out:
            running = [str(rank.rank) for rank in self.ranks if rank.killed]
            late = f"not finished after {self.timeout:g} s, killed: rank {', '.join(running)}"
            text = f"{text}; {late}" if text else late
        blamed = self.first_failure or next((rank for rank in self.ranks if rank.killed), None)
        if blamed and blamed.lines:
            last = "\n".join(f"[{blamed.rank}] {line[:LAST_CHARACTERS]}" for _, line in blamed.lines[-LAST_LINES:])
            text += f"\nlast lines of rank {blamed.rank}:\n{last}"
        return "\n".join([text, *self.notices])


def exit_status(ranks: tuple[RankResult, ...], *, timed_out: bool) -> int:
    """Return the exit status of the simulation, made as srun makes it from the tasks that ended by themselves.

    A task ended by signal N counts as 128+N, and takes precedence over any exit status; otherwise the highest exit
    status is returned. After a timeout it is 124. Tasks that the simulation killed do not count.
    """
    if timed_out:
        return TIMED_OUT
    ended = [rank for rank in ranks if not rank.killed]
    signalled = [rank.returncode for rank in ended if rank.signal is not None]
    return max(signalled or [rank.returncode for rank in ended], default=0)


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    nodes: int | None = None,
    ntasks_per_node: int | str = 1,
    cpus_per_task: int | None = None,
    gpus_per_node: int = 0,
    timeout: float | None = 300.0,
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
        cpus_per_task: CPUs of each task, in the environment only. As under srun, SLURM_CPUS_PER_TASK is set only if a
            number is given.
        gpus_per_node: GPUs of each node, in the environment only. JAX shows each task one CPU device for
            each GPU that it would have.
        timeout: Seconds after which all tasks are killed, or None.
        output_dir: Folder for the whole output of each task, as `rank-N.log`.
        slurm: Generation of Slurm whose environment is imitated: 22.05, 24.11 or 26.05.
        env: Further variables to set in all tasks; they take precedence over everything else.
        label: Whether lines of output begin with `[rank]`.
        echo: Whether output is also written to this process's streams as it comes.
        kill_on_bad_exit: Whether all tasks are killed when one fails.
        keep_lines: How many of the last lines of each task the result keeps; None for all, in memory.

    Returns:
        How the tasks ended and what they printed. A task that fails is a result, not an exception.

    Raises:
        SimulationError: The simulation cannot be started as asked; nothing was run.
        OSError: A log file or the echo could not be written; all tasks were killed.
    """
    tasks_per_node, uniform = checks.task_layout(nodes, ntasks_per_node)
    if slurm not in GENERATIONS:
        raise SimulationError(f"the Slurm generation is {slurm!r}; it is one of {', '.join(GENERATIONS)}")
    command = [os.fspath(argument) for argument in argv]
    directory = Path.cwd()
    base = {"PYTHONUNBUFFERED": "1", **base_environment(os.environ)}
    program = checks.executable(command, {**base, **(env or {})}, directory)
    addresses, notices = checks.node_addresses(len(tasks_per_node))
    problem = checks.host_name_problem() if sum(tasks_per_node) > 1 else None
    notices += [text for text in (problem, checks.spare_from_proxy(base, addresses)) if text]
    logs = Path(output_dir) if output_dir is not None else None
    if logs:
        checks.prepare_directory(logs)
    if echo:
        write(sys.stderr, (f"srunbook simulate: {notice}" for notice in notices))

    with contextlib.ExitStack() as stack:
        job_id = stack.enter_context(checks.fresh_job_id(addresses))
        job = Job(job_id, addresses, tasks_per_node, cpus_per_task, gpus_per_node, uniform, slurm, directory)
        environs, collectors = [], []
        for task in job.tasks():
            devices = {"JAX_NUM_CPU_DEVICES": str(cpu_devices(task))}
            environs.append({**base, **step_environment(task), **devices, **(env or {})})
            log = stack.enter_context((logs / f"rank-{task.rank}.log").open("wb", buffering=0)) if logs else None
            collectors.append(Collector(task.rank, label=label, echo=echo, keep=keep_lines, log=log))
        endings, timed_out = run_tasks(
            [program, *command], environs, collectors, timeout=timeout, kill_on_bad_exit=kill_on_bad_exit
        )
    nodes_of = {task.rank: task.node for task in job.tasks()}
    ended = [_rank_result(ending, nodes_of[ending.rank], collectors[ending.rank]) for ending in endings]
    ranks = tuple(sorted(ended, key=lambda result: result.rank))
    return Result(
        returncode=exit_status(ranks, timed_out=timed_out),
        ranks=ranks,
        first_failure=next((result for result in ended if result.returncode and not result.killed), None),
        timed_out=timed_out,
        timeout=timeout,
        job_id=job_id,
        notices=tuple(notices),
        label=label,
    )


def _rank_result(ending: Ending, node: str, collector: Collector) -> RankResult:
    code = os.waitstatus_to_exitcode(ending.status)
    return RankResult(
        rank=ending.rank,
        node=node,
        returncode=code if code >= 0 else 128 - code,
        signal=-code if code < 0 else None,
        killed=ending.killed,
        seconds=ending.seconds,
        lines=tuple(collector.lines),
    )
