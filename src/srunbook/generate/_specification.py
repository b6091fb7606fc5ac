"""The fields of a job, what each may be, and the sizes to begin from."""

from __future__ import annotations

import re
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from srunbook import sites
from srunbook.generate._contradictions import contradiction

SCHEMA_URL = "https://srunbook.readthedocs.io/en/latest/_static/job.schema.json"
"""Where editors find the schema."""

# [profiles]
PROFILES: dict[str, dict[str, Any]] = {
    "debug": {"nodes": 1, "cpus_per_node": 4, "memory_per_cpu": "2G", "time_limit": "00:10:00", "exclusive": False},
    "small": {"nodes": 2, "cpus_per_node": 8, "memory_per_cpu": "2G", "time_limit": "00:30:00"},
    "medium": {"nodes": 4, "cpus_per_node": 16, "memory_per_cpu": "4G", "time_limit": "02:00:00"},
    "large": {"nodes": 8, "cpus_per_node": 16, "memory_per_cpu": "4G", "time_limit": "04:00:00"},
    "production": {"nodes": 8, "cpus_per_node": 32, "memory_per_cpu": "8G", "time_limit": "12:00:00"},
}
"""Sizes: nodes, CPUs of each, memory of each CPU, time limit."""
# [/profiles]

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


def _free_names(variables: dict[str, str]) -> dict[str, str]:
    for name in variables:
        if name in TAKEN:
            raise PydanticCustomError("taken", "{reason}", {"reason": TAKEN[name], "name": name})
    return variables


Text = Annotated[str, Field(pattern=TEXT)]
VALUE = "without blanks, quotes, \\ or #"


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

    # [what]
    script: str = Field(
        pattern=PROGRAM,
        description="The Python program to run: its path from the folder in which you submit, or the whole path. "
        "It does not begin with ~ or a dash.",
        examples=["train.py"],
    )
    arguments: list[Text] = Field(
        default_factory=list,
        description="Its arguments: a list of texts, each passed on unchanged.",
        examples=[["--epochs", "3"]],
    )
    framework: Literal["jax", "torchrun", "lightning", "gloo"] = Field(
        default="jax",
        description="How it is started: jax, torchrun, lightning, or gloo (plain torch.distributed on CPUs).",
        examples=["torchrun"],
    )
    profile: ProfileName | None = Field(
        default=None, description=f"A size to begin from: {', '.join(PROFILES)}.", examples=["medium"]
    )
    cluster: SiteName | None = Field(
        default=None, description=f"A site to begin from: {', '.join(sites.names())}.", examples=["raven"]
    )
    name: str | None = Field(
        default=None,
        pattern=NAME,
        description=f"Name of the job, {VALUE}, and without /. By default that of the program.",
        examples=["my_job"],
    )
    # [/what]

    # [size]
    nodes: int = Field(ge=1, le=10000, description="Number of nodes, 1 to 10000.", examples=[4])
    cpus_per_node: int = Field(
        ge=1, le=1024, description="CPUs on each node, 1 to 1024, for all its processes together.", examples=[16]
    )
    processes_per_node: int | None = Field(
        default=None,
        ge=1,
        le=512,
        description="Processes on each node, 1 to 512: Slurm starts no more unless a site says otherwise. "
        "By default one for each GPU, and one on a node without GPUs.",
        examples=[1],
    )
    platform: Literal["cpu", "gpu"] = Field(default="cpu", description="What computes: cpu or gpu.", examples=["gpu"])
    gpus_per_node: Annotated[int, Field(ge=1, le=1024)] | Annotated[str, Field(pattern=GPUS)] | None = Field(
        default=None,
        description="GPUs on each node: a number, with a type before it if your site wants one.",
        examples=["a100:4"],
    )
    gpu_option: Literal["gpus-per-node", "gres", "gpus-per-task", "none"] | None = Field(
        default=None,
        description="The option that asks for the GPUs: gpus-per-node, gres, gpus-per-task, or none if the partition "
        "gives whole nodes. By default gres with a type, and gpus-per-node without.",
        examples=["gpus-per-task"],
    )
    devices_per_process: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="JAX devices of each process on CPUs, 1 to 1024. By default one for each CPU of the process.",
        examples=[1],
    )
    memory_per_cpu: str | None = Field(
        default=None,
        pattern=MEMORY,
        description="Memory for each CPU: a whole number and K, M, G or T; without a letter it counts megabytes.",
        examples=["8G"],
    )
    memory_per_node: str | None = Field(
        default=None,
        pattern=MEMORY,
        description="Memory for each node: a whole number and K, M, G or T, or 0 for all of it.",
        examples=["500000M"],
    )
    time_limit: str = Field(
        default="01:00:00",
        pattern=TIME,
        description="Time limit, in any form that Slurm takes: minutes, hours:minutes:seconds, days-hours, "
        "days-hours:minutes, and so on.",
        examples=["02:00:00", "1-12:00:00"],
    )
    exclusive: bool = Field(
        default=True, description="Whether nobody else gets a part of the nodes: true or false.", examples=[False]
    )
    # [/size]

    # [site]
    partition: str | None = Field(
        default=None,
        pattern=DIRECTIVE,
        description=f"Partition, or several with commas, {VALUE}.",
        examples=["compute"],
    )
    account: str | None = Field(
        default=None,
        pattern=DIRECTIVE,
        description=f"Account that the job is charged to, {VALUE}.",
        examples=["my-project"],
    )
    qos: str | None = Field(
        default=None, pattern=DIRECTIVE, description=f"Quality of service, {VALUE}.", examples=["normal"]
    )
    constraint: str | None = Field(
        default=None,
        pattern=DIRECTIVE,
        description=f"Features of the nodes, joined by & (and) or | (or), {VALUE}.",
        examples=["a100"],
    )
    network_interface: str | None = Field(
        default=None,
        pattern=INTERFACES,
        description="Network interface between the nodes, or several with commas, as `ip -brief address` shows them on "
        "a node: for NCCL and for gloo under PyTorch, which choose by themselves without it.",
        examples=["ib0"],
    )
    modules_to_load: list[Annotated[str, Field(pattern=MODULE)]] = Field(
        default_factory=list,
        description="Environment modules to load, in this order: a list of names.",
        examples=[["python/3.11", "gcc/11.2.0"]],
    )
    virtual_environment: str | None = Field(
        default=None,
        pattern=PLACE,
        description="Virtual environment of Python that all nodes see. It may begin with ~ or a variable.",
        examples=["~/jax-env"],
    )
    conda_environment: str | None = Field(
        default=None,
        pattern=CONDA,
        description="Conda environment that all nodes see, with the folder of conda before /envs/, as `conda env list` "
        "shows it. It may begin with ~ or a variable.",
        examples=["~/miniforge3/envs/torch-env"],
    )
    container_image: str | None = Field(
        default=None,
        pattern=PLACE,
        description="Apptainer image to run in. It may begin with ~ or a variable, such as one that a module sets.",
        examples=["$JAX_IMAGE"],
    )
    # [/site]

    # [run]
    env_vars: Annotated[
        dict[Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")], Text], AfterValidator(_free_names)
    ] = Field(
        default_factory=dict,
        description="Environment variables: names and texts. The texts are passed on unchanged, a $ too.",
        examples=[{"JAX_ENABLE_X64": "1"}],
    )
    coordinator_port: int | None = Field(
        default=None,
        ge=1024,
        le=65535,
        description="Port of the coordinator, 1024 to 65535. By default it follows from the job's number.",
        examples=[12345],
    )
    output: str = Field(
        default="logs/%x_%j.out",
        pattern=DIRECTIVE,
        description=f"Log of the job, {VALUE}: %j is its number, %x its name. The script makes a single folder, "
        "as in logs/%j.out; make any other yourself before you submit.",
        examples=["logs/svgd_%j.out"],
    )
    requeue: bool | None = Field(
        default=None,
        description="Whether Slurm may start the job again: true or false. By default as the site has it.",
        examples=[True],
    )
    signal: str | None = Field(
        default=None,
        pattern=SIGNAL,
        description="A signal, such as TERM or USR1, and how many seconds before the time limit all processes get it: "
        "60 if you leave that out.",
        examples=["USR1@120"],
    )
    older_torchrun: bool = Field(
        default=False,
        description="Whether to leave out the options --signals-to-handle and --shutdown-timeout of torchrun, which "
        "PyTorch 2.13 has and an older one may not know: true or false.",
        examples=[True],
    )
    # [/run]

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
        return self.nodes * self.processes * (self.devices_per_process or self.cpus_per_node // self.processes)

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
    def log(self) -> tuple[str, str]:
        """The folder that the script makes for the log, or nothing, and what Slurm is told."""
        linked = re.fullmatch(LINKED, self.output)
        return (linked[1] or "", linked[2]) if linked else ("", self.output)

    @model_validator(mode="after")
    def _consistent(self) -> JobSpecification:
        found = contradiction(self)
        if found:
            raise PydanticCustomError("contradiction", "{text}", {"key": found[0], "text": found[1]})
        return self


def options(annotation: Any) -> list[Any]:
    """List the alternatives of an annotation, without what only constrains them."""
    if get_origin(annotation) is Annotated:
        return options(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [kind for option in get_args(annotation) for kind in options(option)]
    return [annotation]


def kinds(key: str) -> set[Any]:
    """Return the plain types that a field takes.

    >>> sorted(kind.__name__ for kind in kinds("gpus_per_node"))
    ['NoneType', 'int', 'str']
    """
    return {get_origin(kind) or kind for kind in options(JobSpecification.model_fields[key].annotation)}


def choices(key: str) -> list[str]:
    """List the words of which a field takes one; none if it takes any.

    >>> choices("platform"), choices("name")
    (['cpu', 'gpu'], [])
    """
    found = options(JobSpecification.model_fields[key].annotation)
    return [word for kind in found if get_origin(kind) is Literal for word in get_args(kind)]


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
