"""The fields of a job, which of them exclude each other, and the sizes to begin from. sbatch checks the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from srunbook import sites
from srunbook._connections import OTHER_FILES, most_devices
from srunbook._connections import connections as connections_of

SCHEMA_URL = "https://srunbook.readthedocs.io/en/latest/_static/job.schema.json"
"""Where editors find the schema."""

PROFILES: dict[str, dict[str, Any]] = {
    "debug": {"nodes": 1, "cpus_per_node": 4, "memory_per_cpu": "2G", "time_limit": "00:10:00", "exclusive": False},
    "small": {"nodes": 2, "cpus_per_node": 8, "memory_per_cpu": "2G", "time_limit": "00:30:00"},
    "medium": {"nodes": 4, "cpus_per_node": 16, "memory_per_cpu": "4G", "time_limit": "02:00:00"},
    "large": {"nodes": 8, "cpus_per_node": 16, "memory_per_cpu": "4G", "time_limit": "04:00:00"},
    "production": {"nodes": 8, "cpus_per_node": 32, "memory_per_cpu": "8G", "time_limit": "12:00:00"},
}
"""Sizes: number of nodes, CPUs per node, memory per CPU, time limit."""

if TYPE_CHECKING:
    ProfileName = str
    SiteName = str
else:  # a new profile or site is a new choice, in the schema too
    ProfileName = Literal[tuple(PROFILES)]
    SiteName = Literal[sites.names()]

CONTROL = r"\u0000-\u001f\u007f-\u009f\u2028\u2029"
"""Characters that end a line or that no script should hold. The patterns are for Rust and JSON Schema."""

PATH = rf"(?:[^{CONTROL}]*[^\s{CONTROL}])?"
TEXT = rf"^[^{CONTROL}]*$"
PROGRAM = rf"^[^\s{CONTROL}~-]{PATH}$"
PLACE = rf"^(?:~|(?:~/|[^\s{CONTROL}~-]){PATH})$"
CONDA = rf"^(?:~|[^\s{CONTROL}~-])[^{CONTROL}]*/envs/[^\s{CONTROL}/]+$"
GPUS = rf"^(?:[^{CONTROL}:]+:)?[1-9][0-9]*$"
PLAIN_NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
LINKED = r"(?:([A-Za-z0-9_][A-Za-z0-9._-]*)/)?((?:(?:[A-Za-z0-9_]|%x)(?:[A-Za-z0-9._-]|%x)*)?%j(?:[A-Za-z0-9._-]|%x)*)"
"""Logs that the script links into their folder: one folder, and a name of which it knows all parts."""

TAKEN = {
    **dict.fromkeys(
        (
            *("AS_RANK", "EARLY", "HOSTS", "IMAGE", "JOB", "PIXI", "PORT", "PROCESSES"),
            *("PROGRAM", "SRUN_ARGS", "STATUS", "TORCHRUN_ARGS", "VENV"),
        ),
        "the script uses that name itself",
    ),
    **dict.fromkeys(
        ["LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"],
        "it is set for each process: see coordinator_port for MASTER_PORT",
    ),
    "JAX_NUM_CPU_DEVICES": "see devices_per_process",
    "PATH": "a text here replaces all of it: use setup, modules_to_load or an environment",
}
"""Variables whose value in `env_vars` would be lost or end the job, and why."""

EXCLUSIVE = (
    ("memory_per_cpu", "memory_per_node"),
    ("virtual_environment", "conda_environment", "pixi_manifest", "container_image"),
)
"""Fields of which a job has only one."""

TORCHRUN_SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
"""Signals that any torchrun passes on to its processes."""

Text = Annotated[str, Field(pattern=TEXT)]


def _field(description: str, *examples: Any, **more: Any) -> Any:
    """Describe a field, which is None if nobody sets it, unless `more` says otherwise."""
    if "default_factory" not in more:
        more.setdefault("default", None)
    return Field(description=description, examples=list(examples), **more)


class JobSpecification(BaseModel):
    """What a job asks of Slurm, and what it starts.

    Make one with `specify`, from the layers that `read_config` and `settings` give.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        title="A job for srunbook generate",
        json_schema_extra={"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_URL},
    )

    script: str = _field(
        "The Python program to run: its path from the folder in which you submit, or the whole path. "
        "It can't begin with ~ or a dash.",
        "train.py",
        default=...,
        pattern=PROGRAM,
    )
    arguments: list[Text] = _field(
        "The program's arguments: a list of texts, each passed on unchanged.", ["--epochs", "3"], default_factory=list
    )
    framework: Literal["jax", "torchrun", "lightning", "gloo"] = _field(
        "How the program is started: jax, torchrun, lightning, or gloo (plain torch.distributed on CPUs).",
        "torchrun",
        default="jax",
    )
    profile: ProfileName | None = _field(f"A size to start from: {', '.join(PROFILES)}.", "medium")
    cluster: SiteName | None = _field(f"A site to start from: {', '.join(sites.names())}.", "raven")
    name: Annotated[str, Field(pattern=rf"^[^{CONTROL}/]+$")] | None = _field(
        "Name of the job, without /; by default, the program's.", "my_job"
    )
    nodes: int = _field("Number of nodes, 1 or more.", 4, default=..., ge=1)
    cpus_per_node: int = _field(
        "CPUs on each node, 1 or more, for all its processes together. CPUs that can't be divided evenly stay idle.",
        16,
        default=...,
        ge=1,
    )
    processes_per_node: int | None = _field(
        "Processes on each node, 1 or more. By default one for each GPU, and one on a node without GPUs.", 1, ge=1
    )
    platform: Literal["cpu", "gpu"] | None = _field(
        "What computes: cpu or gpu. By default gpu if gpus_per_node is set. With cpu, the job doesn't ask for GPUs, "
        "whatever the cluster has.",
        "gpu",
    )
    gpus_per_node: Annotated[int, Field(ge=1)] | Annotated[str, Field(pattern=GPUS)] | None = _field(
        "GPUs on each node: a number, with a type before it if your site requires one. Not for gloo.",
        "a100:4",
    )
    gpu_option: Literal["gpus-per-node", "gres", "gpus-per-task", "none"] | None = _field(
        "The option that asks for the GPUs: gpus-per-node, gres, gpus-per-task, or none if the partition "
        "gives whole nodes. By default gres with a type, and gpus-per-node without.",
        "gpus-per-task",
    )
    devices_per_process: int | None = _field(
        "JAX devices in each process on CPUs, 1 or more. By default one for each CPU of the process.", 1, ge=1
    )
    memory_per_cpu: Text | None = _field(
        "Memory for each CPU: a whole number and K, M, G or T; megabytes without a letter.", "8G"
    )
    memory_per_node: Text | None = _field(
        "Memory for each node: a whole number and K, M, G or T, or 0 for all of the node's memory.", "500000M"
    )
    time_limit: Text = _field(
        "Time limit, in any form that Slurm accepts: minutes, hours:minutes:seconds, days-hours, "
        "days-hours:minutes, and so on.",
        "02:00:00",
        "1-12:00:00",
        default="01:00:00",
    )
    exclusive: bool = _field("Whether the job gets its nodes for itself: true or false.", False, default=True)
    partition: Text | None = _field("Partition, or several partitions with commas.", "compute")
    account: Text | None = _field("Account that the job is charged to.", "my-project")
    qos: Text | None = _field("Quality of service.", "normal")
    constraint: Text | None = _field("Features of the nodes, joined by & (and) or | (or).", "a100")
    sbatch: dict[Annotated[str, Field(pattern="^[A-Za-z][A-Za-z0-9_-]*$")], bool | int | Text] = _field(
        "Any other sbatch options, passed on unchanged: names with _ or -, and texts or numbers. Write true for an "
        "option without a value.",
        {"comment": "first run", "mail_user": "me@example.org", "contiguous": True},
        default_factory=dict,
    )
    network_interface: Text | None = _field(
        "Network interface between the nodes, or several with commas, as `ip -brief address` shows them on "
        "a node: for NCCL, and for gloo under PyTorch. Without this field, they choose an interface themselves.",
        "ib0",
    )
    setup: list[Text] = _field(
        "Shell commands for your environment: a list of texts, run unchanged before modules are loaded.",
        ["module use /sw/modules", "module restore my_modules", "source /opt/intel/oneapi/setvars.sh --force"],
        default_factory=list,
    )
    modules_to_load: list[Annotated[str, Field(pattern=rf"^[^\s{CONTROL}-][^\s{CONTROL}]*$")]] = _field(
        "Environment modules to load, in this order: a list of names.",
        ["python/3.11", "gcc/11.2.0"],
        default_factory=list,
    )
    virtual_environment: str | None = _field(
        "Python virtual environment that all nodes see, such as the .venv of a uv project. "
        "It may begin with ~ or a variable.",
        "~/jax-env",
        pattern=PLACE,
    )
    conda_environment: str | None = _field(
        "Conda environment that all nodes see, with conda's folder before /envs/, as `conda env list` "
        "shows it. It may begin with ~ or a variable.",
        "~/miniforge3/envs/torch-env",
        pattern=CONDA,
    )
    pixi_manifest: str | None = _field(
        "The pixi.toml or pyproject.toml of a pixi project that all nodes see. It may begin with ~ or a variable.",
        "~/my-project/pixi.toml",
        pattern=PLACE,
    )
    container_image: str | None = _field(
        "Image to run in: a file, whose path may begin with ~ or a variable, such as one that a module sets. "
        "For pyxis also a name in a registry, with # after the registry.",
        "$JAX_IMAGE",
        "~/train.sqsh",
        "nvcr.io#nvidia/pytorch:26.05-py3",
        pattern=PLACE,
    )
    container_engine: Literal["apptainer", "pyxis"] = _field(
        "What starts the container: apptainer (also called Singularity), or pyxis, which adds options to srun.",
        "pyxis",
        default="apptainer",
    )
    container_mounts: list[Annotated[str, Field(pattern=r"^[/$][A-Za-z0-9_./:$+@%=-]*$")]] = _field(
        "Folders that the program sees in the container besides the one that you submit from: a list of texts, "
        "HOST or HOST:INSIDE. HOST may begin with a variable.",
        ["/scratch/data", "$WORK/shared:/data"],
        default_factory=list,
    )
    env_vars: dict[Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")], Text] = _field(
        "Environment variables: names and texts. The texts are passed on unchanged, including $.",
        {"JAX_ENABLE_X64": "1"},
        default_factory=dict,
    )
    coordinator_port: int | None = _field(
        "Port of the coordinator, 1024 to 65535. By default it follows from the job's number.", 12345, ge=1024, le=65535
    )
    output: Text = _field(
        "The job's log: %j is its number, %x its name. The script creates a single folder, as in logs/%j.out; "
        "create any other folder yourself before you submit.",
        "logs/svgd_%j.out",
        default="logs/%x_%j.out",
    )
    requeue: bool | None = _field(
        "Whether Slurm may start the job again: true or false. By default, the site's setting.", True
    )
    signal: str | None = _field(
        "A signal, such as TERM or USR1, and how many seconds before the time limit all processes get it: "
        "60 if you leave out the seconds. Not for the batch shell alone (B:), which would end the job.",
        "USR1@120",
        pattern="^(?:R:)?[A-Z][A-Z0-9]*(?:@[0-9]+)?$",
    )
    older_torchrun: bool = _field(
        "Whether to leave out torchrun's options --signals-to-handle and --shutdown-timeout, which "
        "came with PyTorch 2.10 and 2.12: true or false.",
        True,
        default=False,
    )

    @property
    def gpus(self) -> int:
        """GPUs on each node, or 0."""
        if self.gpus_per_node is None or self.platform == "cpu" or self.framework == "gloo":
            return 0
        return int(str(self.gpus_per_node).rpartition(":")[2])

    @property
    def processes(self) -> int:
        """Processes on each node."""
        return self.processes_per_node or self.gpus or 1

    @property
    def tasks(self) -> int:
        """Tasks on each node, one for torchrun, which starts the processes itself."""
        return 1 if self.framework == "torchrun" else self.processes

    @property
    def share(self) -> int:
        """CPUs of each process."""
        return self.cpus_per_node // self.processes

    @property
    def devices(self) -> int:
        """Devices on all nodes together, as a JAX program counts them, or torch processes."""
        if self.gpus:
            return self.nodes * self.gpus
        if self.framework != "jax":
            return self.nodes * self.processes
        return self.nodes * self.processes * (self.devices_per_process or self.share)

    @property
    def job_name(self) -> str:
        """The name, or one made from the program's name."""
        stem = re.sub(r"[^A-Za-z0-9._-]", "_", self.script.rpartition("/")[2].removesuffix(".py"))
        return self.name or (stem if re.fullmatch(PLAIN_NAME, stem) else "job")

    @property
    def stop(self) -> tuple[str, int]:
        """The signal, such as `SIGUSR1`, and the seconds before the time limit; 60 is Slurm's default."""
        name, _, seconds = (self.signal or "").rpartition(":")[2].partition("@")
        return f"SIG{name.removeprefix('SIG')}", int(seconds or 60)

    @property
    def log(self) -> tuple[str, str]:
        """The folder that the script makes for the log, or an empty text, and the pattern for Slurm."""
        linked = re.fullmatch(LINKED, self.output)
        return (linked[1] or "", linked[2]) if linked else ("", self.output)

    @model_validator(mode="after")
    def _consistent(self) -> JobSpecification:
        for broken, path, text in self._rules():
            if broken:
                raise PydanticCustomError("contradiction", "{text}", {"path": path, "text": text})
        return self

    def _rules(self) -> Iterator[tuple[bool, tuple[str, ...], str]]:
        """Yield each rule about several fields: whether it is broken, the path of the value to change, and why."""
        for name in self.env_vars.keys() & TAKEN.keys():
            yield True, ("env_vars", name), f"the variable {name} cannot be set in env_vars: {TAKEN[name]}"
        for group in EXCLUSIVE:
            first, *others = [name for name in group if getattr(self, name)] or [""]
            for name in others:
                text = f"{name} {getattr(self, name)!r} cannot go with {first}: a job has only one of them. Remove one"
                yield True, (name,), text
        for name in ("container_engine", "container_mounts"):
            bare = f"{name} is only for a job in a container: add container_image, or remove {name}"
            yield name in self.model_fields_set and not self.container_image, (name,), bare
        computes = self.platform == "gpu"
        on_gpus = "platform 'gpu' cannot go with gloo, which computes on CPUs. Take torchrun for GPUs"
        yield computes and self.framework == "gloo", ("platform",), on_gpus
        needs = "platform 'gpu' needs GPUs: add gpus_per_node, as in gpus_per_node: 4"
        yield computes and not self.gpus, ("platform",), needs
        uneven = f"processes_per_node {self.processes} cannot share {self.gpus} GPUs evenly. Take {self.gpus}"
        yield self.gpus % self.processes != 0, ("processes_per_node",), uneven
        devices = "devices_per_process is only for JAX on CPUs. Remove it"
        elsewhere = self.framework != "jax" or self.gpus > 0
        yield bool(self.devices_per_process) and elsewhere, ("devices_per_process",), devices
        interactive = (
            f"name {self.job_name!r} makes Lightning ignore Slurm, as in an interactive job. Take another name"
        )
        yield self.framework == "lightning" and self.job_name in ("bash", "interactive"), ("name",), interactive
        ends = f"signal {self.signal!r} ends an older torchrun, which passes on TERM, INT, HUP and QUIT. Take TERM@120"
        older = self.framework == "torchrun" and self.older_torchrun and self.signal is not None
        yield older and self.stop[0] not in TORCHRUN_SIGNALS, ("signal",), ends


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a configuration file, for editors.

    It requires no field, because a profile, a cluster or an option may set what the file leaves out. It does not say
    which fields exclude each other.
    """
    document = JobSpecification.model_json_schema()
    document.pop("required")
    document["description"] = "Fields of a file for srunbook generate --config."
    for field in document["properties"].values():
        field.pop("title", None)
        if "patternProperties" in field:
            field["additionalProperties"] = False
    return document


@cache
def forms(key: str) -> list[dict[str, Any]]:
    """List the forms that a field may have, as JSON Schemas.

    >>> [form["type"] for form in forms("gpus_per_node")]
    ['integer', 'string', 'null']
    """
    field = schema()["properties"][key]
    return list(field.get("anyOf", [field]))


def choices(key: str) -> list[str]:
    """List the words of which a field takes one; none if it takes any.

    >>> choices("platform"), choices("name")
    (['cpu', 'gpu'], [])
    """
    return [word for form in forms(key) for word in form.get("enum", [])]


FILES = 1024
"""Files that a process may have open on many systems."""


def connections(job: JobSpecification, devices_per_process: int | None = None) -> int:
    """Estimate the TCP connections of each JAX process on CPUs; each connection is an open file.

    There are none for a single process, or for frameworks and platforms whose devices do not connect this way.
    """
    processes = job.nodes * job.processes
    if job.framework != "jax" or job.gpus:
        return 0
    return connections_of(processes, devices_per_process or job.devices // processes)


def advice(job: JobSpecification) -> str | None:
    """Say what to do about too many connections; return None if there are few enough.

    >>> job = JobSpecification(nodes=4, cpus_per_node=16, script="train.py")
    >>> advice(job)
    '--set devices_per_process=8 makes it 272'
    """
    most = FILES - OTHER_FILES
    if connections(job) <= most:
        return None
    devices = most_devices(job.nodes * job.processes, job.share, most)
    if devices is None:
        return "take fewer processes, or have the limit raised (ulimit -Hn)"
    return f"--set devices_per_process={devices} makes it {connections(job, devices)}"


def warning(job: JobSpecification) -> str | None:
    """Warn about a job whose processes would open too many files; return None if there are few enough."""
    if (remedy := advice(job)) is None:
        return None
    return (
        f"each process has about {connections(job)} connections, and many systems let it open {FILES} files: {remedy}; "
        "a program that calls initialize_distributed() may open as many as `ulimit -Hn` says on the nodes"
    )
