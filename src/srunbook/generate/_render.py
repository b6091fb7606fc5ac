"""From a specification to the text of a job script, and to the reasons of its lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from srunbook.generate._connections import advice, connections
from srunbook.generate._errors import JobError
from srunbook.generate._layers import ResolvedJob
from srunbook.generate._patterns import NO_CONTROL
from srunbook.generate._quoting import conda_activation, quote, quote_place
from srunbook.generate._specification import JobSpecification
from srunbook.generate._template import Context, RenderedLine, rendered, source

MAX_SCRIPT = 1 << 20
"""Bytes of a script; Slurm takes four times as much unless a site says otherwise."""

ODD = re.compile(r"'[^']*[$`\\~\u2018-\u201f][^']*'")
"""What shellcheck asks about: it could have been meant to be expanded, or to end the quotes."""

COMMENT_COLUMN = 18
"""Options that a comment follows are filled up to the same width, so that their comments begin in one column."""

PLAIN_FIELDS = (
    *("time_limit", "partition", "account", "qos", "constraint", "nodes", "memory_per_cpu", "memory_per_node"),
    *("exclusive", "requeue", "coordinator_port", "network_interface"),
)
"""Fields that the template takes as they are: their patterns let no character through that bash would act upon."""


@dataclass(frozen=True)
class ScriptLine:
    """A line of a script, and what it is for.

    Args:
        text: The line.
        reason: Why it is there; empty for comments and empty lines.
        origins: Where its values came from: pairs of a field and a place.
    """

    text: str
    reason: str
    origins: tuple[tuple[str, str], ...]


def render(specification: JobSpecification, *, made_by: str | None = None) -> str:
    """Render the text of a job script for sbatch.

    Args:
        specification: The job.
        made_by: The command that makes the script again, for a comment.

    Returns:
        The script, which ends with the end of a line.

    Raises:
        JobError: The script would be larger than Slurm takes, or `made_by` has a control character.
    """
    text = "".join(f"{line.text}\n" for line in rendered(source(), context(specification, made_by)))
    if len(text.encode()) > MAX_SCRIPT:
        raise JobError(
            [
                f"the script has {len(text.encode())} bytes, and at most {MAX_SCRIPT} are safe: put long "
                "arguments into a file that the program reads"
            ]
        )
    return text


def explain(job: ResolvedJob, *, made_by: str | None = None) -> list[ScriptLine]:
    """Render a job script, each line with its reason and the places that its values came from.

    Args:
        job: The job.
        made_by: The command that makes the script again, for a comment.

    Raises:
        JobError: `made_by` has a control character.
    """
    lines = rendered(source(), context(job.specification, made_by))
    return [ScriptLine(line.text, line.reason, tuple(origins(job, line))) for line in lines]


def origins(job: ResolvedJob, line: RenderedLine) -> Iterator[tuple[str, str]]:
    """Name the fields of a line and where they came from."""
    specification = job.specification
    for name in line.fields:
        if name == "env_vars":
            variable = list(specification.env_vars)[line.part]
            yield f"env_vars.{variable}", job.origin("env_vars", variable)
        elif name == "modules_to_load":
            yield f"modules_to_load[{line.part}]", job.origin("modules_to_load", line.part)
        elif name == "arguments":
            if line.part:
                yield f"arguments[{line.part - 1}]", job.origin("arguments", line.part - 1)
        elif not (name == "script" and line.part) and not (name == "gpus_per_node" and not specification.gpus):
            yield name, job.origin(name)


def context(specification: JobSpecification, made_by: str | None) -> Context:
    """Give each name in the template its value: a text that is safe where the template has it, or a yes or no."""
    one = specification
    if made_by is not None and not re.fullmatch(rf"(?:(?![\ud800-\udfff]){NO_CONTROL})*", made_by):
        raise JobError(
            [f"made by {made_by!r}: a comment has one line of UTF-8, and this has a control character or other bytes"]
        )
    program = [quote(word) for word in (one.script, *one.arguments)]
    exports = [f"export {name}={quote(text)}" for name, text in one.env_vars.items()]
    venv, image = quote_place(one.virtual_environment or ""), quote_place(one.container_image or "")
    conda = one.conda_environment and conda_activation(one.conda_environment)
    folder, _, file = one.output.rpartition("/")
    return {
        **{name: getattr(one, name) for name in PLAIN_FIELDS},
        "summary": summary(one),
        "made_by": made_by,
        "odd_words": any(ODD.search(text) for text in [*program, *exports, venv, image, conda or ""]),
        # Slurm
        "job_name": one.job_name,
        "output_file": file,
        "no_requeue": one.requeue is False,
        "signal": one.signal and column(f"--signal={one.signal}"),
        "gpus": gpus(one),
        "tasks": column(f"--ntasks-per-node={one.tasks}"),
        "tasks_are": tasks_are(one),
        "cpus": column(f"--cpus-per-task={one.cpus_per_node // one.tasks}"),
        "cpus_are": "for all processes of a node together" if one.framework == "torchrun" else "of each process",
        # the shell
        "log_folder": folder,
        "log_file": file.replace("%j", "${SLURM_JOB_ID}").replace("%x", "${SLURM_JOB_NAME}"),
        "modules": "\n".join(f"module load {quote(name)}" for name in one.modules_to_load),
        "venv": one.virtual_environment and venv,
        "conda": conda,
        "image": one.container_image and image,
        "exports": "\n".join(exports),
        # the framework
        **{name: one.framework == name for name in ("jax", "torchrun", "lightning", "gloo")},
        "jax_on_cpu": one.framework == "jax" and one.platform == "cpu",
        "torch_under_srun": one.framework in ("lightning", "gloo"),
        "rendezvous": one.framework in ("torchrun", "gloo"),
        "devices": one.devices_per_process or '"$SLURM_CPUS_PER_TASK"',
        "connections_are": connections_are(one),
        "processes": one.processes,
        "processes_are": "on each node: one for each GPU" if one.gpus == one.processes else "on each node",
        "signals": signals(one),
        "grace": grace(one),
        "program": "\n  ".join(program),
        "launcher": launcher(one),
    }


def column(option: str) -> str:
    """Fill an option up to the column of the comments."""
    return option.ljust(COMMENT_COLUMN + 2)


def gpus(one: JobSpecification) -> str | None:
    """Ask for GPUs, if any: sites that want a type take it in --gres."""
    if not one.gpus:
        return None
    if isinstance(one.gpus_per_node, str) and ":" in one.gpus_per_node:
        return f"--gres=gpu:{one.gpus_per_node}"
    return f"--gpus-per-node={one.gpus}"


def tasks_are(one: JobSpecification) -> str:
    """Say what the tasks of a node are."""
    if one.framework == "torchrun":
        return "one torchrun on each node, which starts the processes"
    if one.gpus == one.processes:
        return "one process for each GPU"
    return "one process on each node" if one.processes == 1 else "processes on each node"


def connections_are(one: JobSpecification) -> str:
    """Say how many connections follow from the number of devices."""
    count, way_out = connections(one), advice(one)
    told = f"; so each process has about {count} connections, each an open file" if count else ""
    return f"{told}, and many systems allow 1024: {way_out}" if way_out else told


def summary(one: JobSpecification) -> str:
    """Say in one line what the job is."""
    programs = {"jax": "JAX", "torchrun": "torchrun", "lightning": "Lightning", "gloo": "torch.distributed over gloo"}
    nodes = "1 node" if one.nodes == 1 else f"{one.nodes} nodes"
    each = (
        f"{one.gpus} GPU{'s' * (one.gpus > 1)}"
        if one.gpus
        else f"{one.cpus_per_node} CPU{'s' * (one.cpus_per_node > 1)}"
    )
    count = one.nodes * one.processes
    total = f"{count} process{'es' * (count > 1)}"
    if one.framework == "jax":
        total += f", {one.devices} device{'s' * (one.devices > 1)}"
    return f"{programs[one.framework]} on {nodes} of {each}: {total}."


def signals(one: JobSpecification) -> str:
    """List the signals that torchrun passes on: those it knows by itself, and the job's own."""
    known = ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"]
    own = f"SIG{(one.signal or '').partition('@')[0]}"
    return '"' + ",".join([*known, *([own] if own not in known else [])]) + '"'


def grace(one: JobSpecification) -> int:
    """Return the seconds that processes have after a signal: three quarters of what the job has."""
    return max(1, int((one.signal or "@0").partition("@")[2]) * 3 // 4)


def launcher(one: JobSpecification) -> str:
    """Return what srun starts, before the program."""
    words = []
    if one.framework == "gloo":
        words.append('bash -c "$AS_RANK" bash')
    if one.container_image:
        words.append(f'singularity run{" --nv" if one.gpus else ""} "$IMAGE"')
    words.append('torchrun "${TORCHRUN_ARGS[@]}"' if one.framework == "torchrun" else "python")
    return " ".join(words)
