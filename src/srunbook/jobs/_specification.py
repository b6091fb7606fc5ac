"""The fields of a job, what each may be, and what may not stand together."""

from __future__ import annotations

import re
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

SCHEMA_URL = "https://srunbook.readthedocs.io/en/latest/_static/job.schema.json"
"""Where editors find the schema."""

MAX_TEXT = 4096
"""Characters of one argument or value."""

CONTROL = r"\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069"
NO_CONTROL = rf"[^{CONTROL}]"
"""Any character but those that end a line or turn the direction of the text: nothing may make a line of its own."""

UNSEEN = r"\s\u200b-\u200f\u2060\ufeff"
"""Characters that nobody sees at the end of a path, and that come along when it is copied."""

END = rf"(?:{NO_CONTROL}*[^{CONTROL}{UNSEEN}])?"
"""The rest of a path: it ends in something that one can see."""

TEXT = rf"^{NO_CONTROL}*$"
PROGRAM = rf"^[^-~{CONTROL}{UNSEEN}]{END}$"
PLACE = rf"^(?:(?:~|\$[A-Za-z_][A-Za-z0-9_]*)(?:/{END})?|[A-Za-z0-9_./]{END})$"
WORD = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
WORDS = r"^[A-Za-z0-9][A-Za-z0-9._-]*(?:,[A-Za-z0-9][A-Za-z0-9._-]*)*$"
FEATURES = r"^[A-Za-z0-9][A-Za-z0-9._-]*(?:[&|][A-Za-z0-9][A-Za-z0-9._-]*)*$"
MODULE = r"^[A-Za-z0-9][A-Za-z0-9._+/@-]*$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
MEMORY = r"^[1-9][0-9]{0,8}[KMGT]$"
TIME = r"^(?:[0-9]{1,3}-(?:[01]?[0-9]|2[0-3])|[0-9]{1,3}):[0-5][0-9]:[0-5][0-9]$"
GPUS = r"^(?:[A-Za-z][A-Za-z0-9_.-]*:)?[1-9][0-9]?$"
TO_65535 = "(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
SIGNAL = rf"^(?:HUP|INT|QUIT|USR1|USR2|TERM|CONT)@{TO_65535}$"
OUTPUT = r"^(?:[A-Za-z0-9_][A-Za-z0-9._-]*/)?(?:(?:[A-Za-z0-9_]|%x)(?:[A-Za-z0-9._-]|%x)*)?%j(?:[A-Za-z0-9._-]|%x)*$"
MAX_FILE_NAME = 255
"""Bytes of the name of a file on Linux."""

BASH_NAMES = frozenset(
    {
        "CDPATH",
        "COLUMNS",
        "COPROC",
        "DIRSTACK",
        "ENV",
        "EPOCHREALTIME",
        "EPOCHSECONDS",
        "EUID",
        "EXECIGNORE",
        "FIGNORE",
        "FUNCNAME",
        "FUNCNEST",
        "GLOBIGNORE",
        "GROUPS",
        "HISTCMD",
        "HOME",
        "HOSTNAME",
        "IFS",
        "LINENO",
        "LINES",
        "MAPFILE",
        "OLDPWD",
        "OPTARG",
        "OPTERR",
        "OPTIND",
        "PATH",
        "PIPESTATUS",
        "POSIXLY_CORRECT",
        "PPID",
        "PROMPT_COMMAND",
        "PS0",
        "PS1",
        "PS2",
        "PS3",
        "PS4",
        "PWD",
        "RANDOM",
        "READLINE_LINE",
        "REPLY",
        "SECONDS",
        "SHELL",
        "SHELLOPTS",
        "SHLVL",
        "SRANDOM",
        "TIMEFORMAT",
        "TMOUT",
        "UID",
        "USER",
        "_",
    }
)
"""Variables that have a meaning for bash, or that it sets by itself."""

SCRIPT_NAMES = frozenset(
    {"AS_RANK", "HOSTS", "IMAGE", "PORT", "PROCESSES", "PROGRAM", "SRUN_ARGS", "TORCHRUN_ARGS", "VENV"}
)
"""Variables of the rendered script."""

LAUNCHER_NAMES = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
        "GROUP_RANK",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "NODE_RANK",
        "RANK",
        "ROCR_VISIBLE_DEVICES",
        "WORLD_SIZE",
        "ZE_AFFINITY_MASK",
    }
)
"""Variables that Slurm or the launcher set in each process, whatever the job says."""


def taken(name: str) -> str | None:
    """Says who sets a variable, where it is none for a job to set."""
    if name in BASH_NAMES or name.startswith("BASH"):
        return "the shell sets it"
    if name in SCRIPT_NAMES:
        return "the script uses that name itself"
    if name in LAUNCHER_NAMES:
        return "it is set for each process: see coordinator_port for MASTER_PORT"
    if name == "JAX_NUM_CPU_DEVICES":
        return "see devices_per_process"
    if name.startswith("SLURM_") and name != "SLURM_COORDINATOR_ADDRESS":
        return "Slurm sets it"
    return None


def _free_names(variables: dict[str, str]) -> dict[str, str]:
    for name in variables:
        reason = taken(name)
        if reason:
            raise PydanticCustomError("taken", "{reason}", {"reason": reason, "name": name})
    return variables


Text = Annotated[str, Field(pattern=TEXT, max_length=MAX_TEXT)]


class JobSpecification(BaseModel):
    """What a job asks of Slurm, and what it starts.

    Read one from YAML with `read_config`, or put one together with `specify`.
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
        max_length=MAX_TEXT,
        description="The Python program to run: its path from the folder in which you submit.",
        examples=["train.py"],
    )
    arguments: list[Text] = Field(
        default_factory=list,
        max_length=256,
        description="Its arguments: a list of texts, each passed on as it is.",
        examples=[["--epochs", "3"]],
    )
    framework: Literal["jax", "torchrun", "lightning", "gloo"] = Field(
        default="jax",
        description="How it is started: jax, torchrun, lightning, or gloo (plain torch.distributed on CPUs).",
        examples=["torchrun"],
    )
    profile: Literal["debug", "small", "medium", "large", "production"] | None = Field(
        default=None,
        description="A size to begin from: debug, small, medium, large, production.",
        examples=["medium"],
    )
    cluster: Literal["generic", "ibex", "raven", "crusoe-like"] | None = Field(
        default=None,
        description="A site to begin from: generic, ibex, raven, crusoe-like.",
        examples=["raven"],
    )
    name: str | None = Field(
        default=None,
        pattern=WORD,
        description="Name of the job: at most 64 letters, digits, dots, dashes. By default that of the program.",
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
    gpus_per_node: Annotated[int, Field(ge=1, le=99)] | Annotated[str, Field(pattern=GPUS)] | None = Field(
        default=None,
        description="GPUs on each node: a number from 1 to 99, with a type before it where the site wants one.",
        examples=["a100:4"],
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
        description="Memory for each CPU: a whole number and K, M, G or T.",
        examples=["8G"],
    )
    memory_per_node: str | None = Field(
        default=None,
        pattern=MEMORY,
        description="Memory for each node: a whole number and K, M, G or T.",
        examples=["500000M"],
    )
    time_limit: str = Field(
        default="01:00:00",
        pattern=TIME,
        description="Time limit: hours, minutes and seconds, or days before them, as a text.",
        examples=["02:00:00", "1-12:00:00"],
    )
    exclusive: bool = Field(
        default=True, description="Whether nobody else gets a part of the nodes: true or false.", examples=[False]
    )
    # [/size]

    # [site]
    partition: str | None = Field(
        default=None,
        pattern=WORDS,
        max_length=256,
        description="Partition, or several with commas; at most 256 letters, digits, dots, dashes.",
        examples=["compute"],
    )
    account: str | None = Field(
        default=None, pattern=WORD, description="Account that the job is charged to.", examples=["my-project"]
    )
    qos: str | None = Field(default=None, pattern=WORD, description="Quality of service.", examples=["normal"])
    constraint: str | None = Field(
        default=None,
        pattern=FEATURES,
        max_length=256,
        description="Features of the nodes, joined by & (and) or | (or); at most 256 characters.",
        examples=["a100"],
    )
    modules_to_load: list[Annotated[str, Field(pattern=MODULE, max_length=128)]] = Field(
        default_factory=list,
        max_length=64,
        description="Environment modules to load, in this order: a list of names.",
        examples=[["python/3.11", "gcc/11.2.0"]],
    )
    virtual_environment: str | None = Field(
        default=None,
        pattern=PLACE,
        max_length=MAX_TEXT,
        description="Virtual environment of Python that all nodes see. It may begin with ~ or a variable.",
        examples=["~/jax-env"],
    )
    container_image: str | None = Field(
        default=None,
        pattern=PLACE,
        max_length=MAX_TEXT,
        description="Apptainer image to run in. It may begin with ~ or a variable, such as one that a module sets.",
        examples=["$JAX_IMAGE"],
    )
    # [/site]

    # [run]
    env_vars: Annotated[
        dict[Annotated[str, Field(pattern=VARIABLE, max_length=128)], Text], AfterValidator(_free_names)
    ] = Field(
        default_factory=dict,
        max_length=256,
        description="Environment variables: names and texts. The texts are taken as they are, a $ too.",
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
        pattern=OUTPUT,
        max_length=128,
        description="Log of the job: %j is its number, %x its name. The file begins with one of them, a letter, a "
        "digit or _. At most one folder, which is made when missing.",
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
        description="A signal (HUP, INT, QUIT, USR1, USR2, TERM, CONT), and how many seconds before the time limit all "
        "processes get it, 1 to 65535.",
        examples=["USR1@120"],
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
        """Tasks on each node. There is one torchrun, which starts the processes itself."""
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
        return self.name or (stem if re.fullmatch(WORD, stem) else "job")

    @property
    def seconds(self) -> int:
        """Time limit in seconds."""
        days, _, rest = self.time_limit.rpartition("-")
        hours, minutes, seconds = map(int, rest.split(":"))
        return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds

    @model_validator(mode="after")
    def _consistent(self) -> JobSpecification:
        for key, wrong, text in self._rules():
            if wrong:
                raise PydanticCustomError("contradiction", "{text}", {"key": key, "text": text})
        return self

    def _rules(self) -> list[tuple[str, bool, str]]:
        """Fields, whether they contradict others, and what is said then."""
        share = self.cpus_per_node // self.processes
        file = self.output.rpartition("/")[2].replace("%x", self.job_name).replace("%j", "4294967295")
        return [
            ("time_limit", not self.seconds, "is no time at all. Give the job some"),
            (
                "signal",
                int((self.signal or "@0").partition("@")[2]) >= max(1, self.seconds),
                f"comes before the job: the time limit is {self.time_limit}, {self.seconds} seconds. "
                "Take fewer seconds, or a longer time_limit",
            ),
            (
                "output",
                len(file) > MAX_FILE_NAME,
                f"makes a file name of {len(file)} letters, and a system takes {MAX_FILE_NAME}. Take a shorter one, as "
                "in output: logs/%x_%j.out",
            ),
            (
                "gpus_per_node",
                str(self.gpus_per_node).lower().startswith("gpu:"),
                "has no type of a GPU before its colon. Write the number alone, or a type, as in a100:4",
            ),
            (
                "virtual_environment",
                ":" in (self.virtual_environment or ""),
                "has a colon, which ends a folder in PATH. Move the environment to a folder without one",
            ),
            (
                "gpus_per_node",
                self.platform == "cpu" and bool(self.gpus),
                "goes with platform: gpu, and platform is cpu. Change one of them",
            ),
            (
                "platform",
                self.platform == "gpu" and not self.gpus,
                "needs GPUs: add gpus_per_node, as in gpus_per_node: 4",
            ),
            (
                "framework",
                self.framework == "gloo" and self.platform == "gpu",
                "computes on CPUs: take torchrun for GPUs, or platform: cpu",
            ),
            (
                "memory_per_node",
                bool(self.memory_per_node and self.memory_per_cpu),
                "stands beside memory_per_cpu, and Slurm takes one of them. Remove the other",
            ),
            (
                "container_image",
                bool(self.container_image and self.virtual_environment),
                "stands beside virtual_environment, and Python comes from one of them. Remove the other",
            ),
            (
                "processes_per_node",
                self.cpus_per_node % self.processes != 0,
                f"makes {self.processes} processes on a node, which cannot share {self.cpus_per_node} CPUs evenly. "
                f"Take cpus_per_node: {max(1, share) * self.processes}",
            ),
            (
                "processes_per_node",
                bool(self.gpus) and self.gpus % self.processes != 0,
                f"makes {self.processes} processes on a node, which cannot share {self.gpus} GPUs evenly. "
                f"Take processes_per_node: {self.gpus}",
            ),
            (
                "devices_per_process",
                self.devices_per_process is not None and (self.framework != "jax" or self.platform == "gpu"),
                "is for JAX on CPUs. Remove it",
            ),
            (
                "devices_per_process",
                self.devices_per_process is not None and self.devices_per_process > max(1, share),
                f"is more than the {share} CPUs of a process. Take at most that",
            ),
            (
                "name",
                self.framework == "lightning" and self.job_name in ("bash", "interactive"),
                "makes Lightning ignore Slurm: it takes a job of that name for an interactive one. Take another name",
            ),
        ]


def options(annotation: Any) -> list[Any]:
    """The alternatives of an annotation, without what only constrains them."""
    if get_origin(annotation) is Annotated:
        return options(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [kind for option in get_args(annotation) for kind in options(option)]
    return [annotation]


def kinds(key: str) -> set[Any]:
    """The plain types that a field takes.

    >>> sorted(kind.__name__ for kind in kinds("gpus_per_node"))
    ['NoneType', 'int', 'str']
    """
    return {get_origin(kind) or kind for kind in options(JobSpecification.model_fields[key].annotation)}


def choices(key: str) -> list[str]:
    """The words of which a field takes one; none where it takes any.

    >>> choices("platform"), choices("name")
    (['cpu', 'gpu'], [])
    """
    found = options(JobSpecification.model_fields[key].annotation)
    return [word for kind in found if get_origin(kind) is Literal for word in get_args(kind)]


def schema() -> dict[str, Any]:
    """The JSON Schema of a configuration file, for editors.

    Nothing is required in it: a profile, a cluster or an option may say what the file leaves out. What may not stand
    together is not in it either.
    """
    made = JobSpecification.model_json_schema()
    made.pop("required")
    made["description"] = "Fields of a file for srunbook generate --config."
    for field in made["properties"].values():
        field.pop("title", None)
        if "patternProperties" in field:
            field["additionalProperties"] = False
    return made
