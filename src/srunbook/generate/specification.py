"""The fields of a job, what each may be, which exclude each other, and the sizes to begin from."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
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
"""Sizes: nodes, CPUs of each, memory of each CPU, time limit."""

if TYPE_CHECKING:
    ProfileName = str
    SiteName = str
else:  # a new profile or site is a new choice, in the schema too
    ProfileName = Literal[tuple(PROFILES)]
    SiteName = Literal[sites.names()]

CONTROL = r"\u0000-\u001f\u007f-\u009f\u2028\u2029"
"""Characters that end a line or that no script should hold. The patterns are for Rust, JavaScript and JSON Schema."""

BREAKING = rf"\s{CONTROL}\u0022\u0027\\#"
"""Characters that end or change a value after #SBATCH."""

PATH = rf"(?:[^{CONTROL}]*[^\s{CONTROL}])?"
TEXT = rf"^[^{CONTROL}]*$"
PROGRAM = rf"^[^\s{CONTROL}~-]{PATH}$"
PLACE = rf"^(?:~|(?:~/|[^\s{CONTROL}~-]){PATH})$"
CONDA = rf"^(?:~|[^\s{CONTROL}~-])[^{CONTROL}]*/envs/[^\s{CONTROL}/]+$"
DIRECTIVE = rf"^[^{BREAKING}]+$"
NAME = rf"^[^{BREAKING}/]+$"
INTERFACES = r"^[A-Za-z0-9_.,:=^@+-]+$"
MODULE = rf"^[^\s{CONTROL}-][^\s{CONTROL}]*$"
MEMORY = "^[0-9]+[KMGTPkmgtp]?[Bb]?$"
TIME = r"^(?:(?:[0-9]+-)?[0-9]+(?::[0-9]+){0,2}|UNLIMITED|INFINITE|unlimited|infinite)$"
GPUS = rf"^(?:[^{BREAKING}:,=]+:)?[1-9][0-9]{{0,3}}$"
SIGNAL = (
    "^(?:[BR]:|BR:|RB:)?(?:SIG)?(?:HUP|INT|QUIT|ABRT|KILL|ALRM|TERM|USR1|USR2|URG|CONT|STOP|TSTP|TTIN|TTOU|XCPU)"
    "(?:@[0-9]{1,5})?$"
)
PLAIN_NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
LINKED = r"(?:([A-Za-z0-9_][A-Za-z0-9._-]*)/)?((?:(?:[A-Za-z0-9_]|%x)(?:[A-Za-z0-9._-]|%x)*)?%j(?:[A-Za-z0-9._-]|%x)*)"
"""Logs that the script links into their folder: one folder, and a name of which it knows all parts."""

TAKEN = {
    **dict.fromkeys(
        ("AS_RANK", "EARLY", "HOSTS", "IMAGE", "PORT", "PROCESSES", "PROGRAM", "SRUN_ARGS", "TORCHRUN_ARGS", "VENV"),
        "the script uses that name itself",
    ),
    **dict.fromkeys(
        ("LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"),
        "it is set for each process: see coordinator_port for MASTER_PORT",
    ),
    "JAX_NUM_CPU_DEVICES": "see devices_per_process",
    "PATH": "a text here replaces all of it: use modules_to_load, virtual_environment or conda_environment",
}
"""Variables whose value in `env_vars` would be lost or end the job, and why."""


PAIRS = (
    ("memory_per_node", "memory_per_cpu"),
    ("container_image", "virtual_environment"),
    ("container_image", "conda_environment"),
    ("conda_environment", "virtual_environment"),
)
"""Fields of which a job has only one."""

CONTRADICTIONS = {
    "no-type": "gpus_per_node names no type of GPU before its colon. Write the number alone, or a type, as in a100:4",
    "gpus-on-cpu": "gpus_per_node goes with platform: gpu, and platform is cpu. Change one of them",
    "no-gpus": "platform needs GPUs: add gpus_per_node, as in gpus_per_node: 4; with gpu_option: none if you get whole "
    "nodes anyway",
    "gloo-on-gpu": "framework computes on CPUs only: take torchrun for GPUs, or platform: cpu",
    **{
        f"{one}-and-{other}": f"{one} cannot go with {other}: a job has only one of them. Remove the other"
        for one, other in PAIRS
    },
    "two-interfaces": "network_interface cannot go with NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME in env_vars: it sets "
    "both. Remove one of them",
    "uneven-cpus": "processes_per_node makes {processes} processes on a node, which cannot share {cpus_per_node} CPUs "
    "evenly. Take cpus_per_node: {even_cpus}",
    "uneven-gpus": "processes_per_node makes {processes} processes on a node, which cannot share {gpus} GPUs evenly. "
    "Take processes_per_node: {gpus}",
    "devices-elsewhere": "devices_per_process is only for JAX on CPUs. Remove it",
    "many-devices": "devices_per_process is more than the {share} CPUs of a process. Take at most {share}",
    "interactive-name": "name makes Lightning ignore Slurm: it takes a job of that name for an interactive one. Take "
    "another name",
    "batch-shell-signal": "signal begins with B:, so Slurm sends it to the batch shell alone, which dies of it and "
    "ends the job before the program has saved. Remove the B:",
    "older-torchrun": "signal ends an older torchrun, which passes on TERM, INT, HUP and QUIT alone. Take one of "
    "these, as in TERM@120",
}
"""Rules about several fields, in the order in which they are asked; the first that is broken is told.

The first word is the field that the message is about. The page that renders job scripts in a browser has the same
texts.
"""

TORCHRUN_SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
"""Signals that any torchrun passes on to its processes."""

INTERFACE_NAMES = frozenset({"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"})


def _free_names(variables: dict[str, str]) -> dict[str, str]:
    for name in variables:
        if name in TAKEN:
            text = "the variable {name} cannot be set in env_vars: {reason}"
            raise PydanticCustomError("taken", text, {"reason": TAKEN[name], "name": name})
    return variables


Text = Annotated[str, Field(pattern=TEXT)]
VALUE = "without blanks, quotes, \\ or #"


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
        "It does not begin with ~ or a dash.",
        "train.py",
        default=...,
        pattern=PROGRAM,
    )
    arguments: list[Text] = _field(
        "Its arguments: a list of texts, each passed on unchanged.", ["--epochs", "3"], default_factory=list
    )
    framework: Literal["jax", "torchrun", "lightning", "gloo"] = _field(
        "How it is started: jax, torchrun, lightning, or gloo (plain torch.distributed on CPUs).",
        "torchrun",
        default="jax",
    )
    profile: ProfileName | None = _field(f"A size to begin from: {', '.join(PROFILES)}.", "medium")
    cluster: SiteName | None = _field(f"A site to begin from: {', '.join(sites.names())}.", "raven")
    name: str | None = _field(
        f"Name of the job, {VALUE}, and without /. By default that of the program.", "my_job", pattern=NAME
    )
    nodes: int = _field("Number of nodes, 1 to 10000.", 4, default=..., ge=1, le=10000)
    cpus_per_node: int = _field(
        "CPUs on each node, 1 to 1024, for all its processes together.", 16, default=..., ge=1, le=1024
    )
    processes_per_node: int | None = _field(
        "Processes on each node, 1 to 512: Slurm starts no more unless a site says otherwise. "
        "By default one for each GPU, and one on a node without GPUs.",
        1,
        ge=1,
        le=512,
    )
    platform: Literal["cpu", "gpu"] = _field("What computes: cpu or gpu.", "gpu", default="cpu")
    gpus_per_node: Annotated[int, Field(ge=1, le=1024)] | Annotated[str, Field(pattern=GPUS)] | None = _field(
        "GPUs on each node: a number, with a type before it if your site wants one.", "a100:4"
    )
    gpu_option: Literal["gpus-per-node", "gres", "gpus-per-task", "none"] | None = _field(
        "The option that asks for the GPUs: gpus-per-node, gres, gpus-per-task, or none if the partition "
        "gives whole nodes. By default gres with a type, and gpus-per-node without.",
        "gpus-per-task",
    )
    devices_per_process: int | None = _field(
        "JAX devices of each process on CPUs, 1 to 1024. By default one for each CPU of the process.", 1, ge=1, le=1024
    )
    memory_per_cpu: str | None = _field(
        "Memory for each CPU: a whole number and K, M, G or T; without a letter it counts megabytes.",
        "8G",
        pattern=MEMORY,
    )
    memory_per_node: str | None = _field(
        "Memory for each node: a whole number and K, M, G or T, or 0 for all of it.", "500000M", pattern=MEMORY
    )
    time_limit: str = _field(
        "Time limit, in any form that Slurm takes: minutes, hours:minutes:seconds, days-hours, "
        "days-hours:minutes, and so on.",
        "02:00:00",
        "1-12:00:00",
        default="01:00:00",
        pattern=TIME,
    )
    exclusive: bool = _field("Whether nobody else gets a part of the nodes: true or false.", False, default=True)
    partition: str | None = _field(f"Partition, or several with commas, {VALUE}.", "compute", pattern=DIRECTIVE)
    account: str | None = _field(f"Account that the job is charged to, {VALUE}.", "my-project", pattern=DIRECTIVE)
    qos: str | None = _field(f"Quality of service, {VALUE}.", "normal", pattern=DIRECTIVE)
    constraint: str | None = _field(
        f"Features of the nodes, joined by & (and) or | (or), {VALUE}.", "a100", pattern=DIRECTIVE
    )
    network_interface: str | None = _field(
        "Network interface between the nodes, or several with commas, as `ip -brief address` shows them on "
        "a node: for NCCL and for gloo under PyTorch, which choose by themselves without it.",
        "ib0",
        pattern=INTERFACES,
    )
    modules_to_load: list[Annotated[str, Field(pattern=MODULE)]] = _field(
        "Environment modules to load, in this order: a list of names.",
        ["python/3.11", "gcc/11.2.0"],
        default_factory=list,
    )
    virtual_environment: str | None = _field(
        "Virtual environment of Python that all nodes see. It may begin with ~ or a variable.",
        "~/jax-env",
        pattern=PLACE,
    )
    conda_environment: str | None = _field(
        "Conda environment that all nodes see, with the folder of conda before /envs/, as `conda env list` "
        "shows it. It may begin with ~ or a variable.",
        "~/miniforge3/envs/torch-env",
        pattern=CONDA,
    )
    container_image: str | None = _field(
        "Apptainer image to run in. It may begin with ~ or a variable, such as one that a module sets.",
        "$JAX_IMAGE",
        pattern=PLACE,
    )
    env_vars: Annotated[
        dict[Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")], Text], AfterValidator(_free_names)
    ] = _field(
        "Environment variables: names and texts. The texts are passed on unchanged, a $ too.",
        {"JAX_ENABLE_X64": "1"},
        default_factory=dict,
    )
    coordinator_port: int | None = _field(
        "Port of the coordinator, 1024 to 65535. By default it follows from the job's number.", 12345, ge=1024, le=65535
    )
    output: str = _field(
        f"Log of the job, {VALUE}: %j is its number, %x its name. The script makes a single folder, "
        "as in logs/%j.out; make any other yourself before you submit.",
        "logs/svgd_%j.out",
        default="logs/%x_%j.out",
        pattern=DIRECTIVE,
    )
    requeue: bool | None = _field(
        "Whether Slurm may start the job again: true or false. By default as the site has it.", True
    )
    signal: str | None = _field(
        "A signal, such as TERM or USR1, and how many seconds before the time limit all processes get it: "
        "60 if you leave that out.",
        "USR1@120",
        pattern=SIGNAL,
    )
    older_torchrun: bool = _field(
        "Whether to leave out the options --signals-to-handle and --shutdown-timeout of torchrun, which "
        "came with PyTorch 2.10 and 2.12: true or false.",
        True,
        default=False,
    )

    @property
    def gpus(self) -> int:
        """GPUs on each node, 0 without."""
        return 0 if self.gpus_per_node is None else int(str(self.gpus_per_node).rpartition(":")[2])

    @property
    def processes(self) -> int:
        """Processes on each node."""
        return self.processes_per_node or self.gpus or 1

    @property
    def tasks(self) -> int:
        """Tasks on each node, one for torchrun, which starts the processes itself."""
        return 1 if self.framework == "torchrun" else self.processes

    @property
    def devices(self) -> int:
        """Devices on all nodes together, as a JAX program counts them, or processes of torch."""
        if self.gpus:
            return self.nodes * self.gpus
        if self.framework != "jax":
            return self.nodes * self.processes
        return self.nodes * self.processes * (self.devices_per_process or self.share)

    @property
    def job_name(self) -> str:
        """The name, or one made from that of the program."""
        stem = re.sub(r"[^A-Za-z0-9._-]", "_", self.script.rpartition("/")[2].removesuffix(".py"))
        return self.name or (stem if re.fullmatch(PLAIN_NAME, stem) else "job")

    @property
    def stop(self) -> tuple[str, int]:
        """The signal, such as `SIGUSR1`, and the seconds before the time limit; 60 is Slurm's default."""
        name, _, seconds = (self.signal or "").rpartition(":")[2].partition("@")
        return f"SIG{name.removeprefix('SIG')}", int(seconds or 60)

    @property
    def share(self) -> int:
        """CPUs of each process."""
        return self.cpus_per_node // self.processes

    @property
    def log(self) -> tuple[str, str]:
        """The folder that the script makes for the log, or nothing, and what Slurm is told."""
        linked = re.fullmatch(LINKED, self.output)
        return (linked[1] or "", linked[2]) if linked else ("", self.output)

    @model_validator(mode="after")
    def _consistent(self) -> JobSpecification:
        broken = self._broken()
        name = next((name for name in CONTRADICTIONS if broken[name]), None)
        if name:
            field, _, text = CONTRADICTIONS[name].partition(" ")
            told = {name: getattr(self, name) for name in ("processes", "cpus_per_node", "gpus", "share")}
            text = text.format(**told, even_cpus=max(1, self.share) * self.processes)
            raise PydanticCustomError("contradiction", "{text}", {"key": field, "text": text})
        return self

    def _broken(self) -> dict[str, bool]:
        """Return which rule about several fields this job breaks."""
        passed_on = self.signal is None or self.stop[0] in TORCHRUN_SIGNALS
        return {
            "no-type": str(self.gpus_per_node).lower().startswith("gpu:"),
            "gpus-on-cpu": self.platform == "cpu" and self.gpus > 0,
            "no-gpus": self.platform == "gpu" and not self.gpus,
            "gloo-on-gpu": self.framework == "gloo" and self.platform == "gpu",
            **{f"{one}-and-{other}": bool(getattr(self, one) and getattr(self, other)) for one, other in PAIRS},
            "two-interfaces": bool(self.network_interface) and not INTERFACE_NAMES.isdisjoint(self.env_vars),
            "uneven-cpus": self.cpus_per_node % self.processes != 0,
            "uneven-gpus": self.gpus % self.processes != 0,
            "devices-elsewhere": bool(self.devices_per_process) and (self.framework, self.platform) != ("jax", "cpu"),
            "many-devices": (self.devices_per_process or 0) > self.share,
            "interactive-name": self.framework == "lightning" and self.job_name in ("bash", "interactive"),
            "batch-shell-signal": "B" in (self.signal or "").rpartition(":")[0],
            "older-torchrun": self.framework == "torchrun" and self.older_torchrun and not passed_on,
        }


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a configuration file, for editors.

    It requires nothing, because a profile, a cluster or an option may set what the file leaves out, and it does not
    know which fields exclude each other.
    """
    made = JobSpecification.model_json_schema()
    made.pop("required")
    made["description"] = "Fields of a file for srunbook generate --config."
    for field in made["properties"].values():
        field.pop("title", None)
        if "patternProperties" in field:
            field["additionalProperties"] = False
    return made


@cache
def forms(key: str) -> list[dict[str, Any]]:
    """List the forms that a field may have, as JSON Schemas.

    >>> [form["type"] for form in forms("gpus_per_node")]
    ['integer', 'string', 'null']
    """
    made = schema()["properties"][key]
    return list(made.get("anyOf", [made]))


def choices(key: str) -> list[str]:
    """List the words of which a field takes one; none if it takes any.

    >>> choices("platform"), choices("name")
    (['cpu', 'gpu'], [])
    """
    return [word for form in forms(key) for word in form.get("enum", [])]


FILES = 1024
"""Files that a process may have open on many systems."""

WARNING = (
    "each process has about {count} connections, and many systems let it open {files} files: {advice}; "
    "a program that calls initialize_distributed() may open as many as `ulimit -Hn` says on the nodes"
)
"""What `warning` says."""


def connections(specification: JobSpecification, devices_per_process: int | None = None) -> int:
    """Count the TCP connections of each process of JAX on CPUs: each is an open file.

    Args:
        specification: The job.
        devices_per_process: Count as if each process had this many devices.

    Returns:
        About how many; 0 for a single process, and for frameworks and platforms whose devices do not connect this way.
    """
    one = specification
    processes = one.nodes * one.processes
    if one.framework != "jax" or one.platform != "cpu":
        return 0
    return connections_of(processes, devices_per_process or one.devices // processes)


def advice(specification: JobSpecification) -> str | None:
    """Say what to do about too many connections; return None if there are few enough.

    >>> one = JobSpecification(nodes=4, cpus_per_node=16, script="train.py")
    >>> advice(one)
    '--set devices_per_process=8 makes it 272'
    """
    one, left = specification, FILES - OTHER_FILES
    if connections(one) <= left:
        return None
    devices = most_devices(one.nodes * one.processes, one.share, left)
    if devices is None:
        return "take fewer processes, or have the limit raised (ulimit -Hn)"
    return f"--set devices_per_process={devices} makes it {connections(one, devices)}"


def warning(specification: JobSpecification) -> str | None:
    """Warn about a job whose processes would open too many files; return None if there are few enough."""
    way_out = advice(specification)
    return way_out and WARNING.format(count=connections(specification), files=FILES, advice=way_out)
