"""The fields of a job, what each may be, and which of them exclude each other."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from srunbook import sites
from srunbook.generate import _patterns as patterns
from srunbook.generate._contradictions import contradiction
from srunbook.generate._profiles import PROFILES
from srunbook.generate._variables import taken

SCHEMA_URL = "https://srunbook.readthedocs.io/en/latest/_static/job.schema.json"
"""Where editors find the schema."""

if TYPE_CHECKING:
    ProfileName = str
    SiteName = str
else:  # a new profile or site is a new choice, in the schema too
    ProfileName = Literal[tuple(PROFILES)]
    SiteName = Literal[sites.names()]


def _free_names(variables: dict[str, str]) -> dict[str, str]:
    for name in variables:
        reason = taken(name)
        if reason:
            raise PydanticCustomError("taken", "{reason}", {"reason": reason, "name": name})
    return variables


Text = Annotated[str, Field(pattern=patterns.TEXT, max_length=patterns.MAX_TEXT)]


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
        pattern=patterns.PROGRAM,
        max_length=patterns.MAX_TEXT,
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
    profile: ProfileName | None = Field(
        default=None,
        description=f"A size to begin from: {', '.join(PROFILES)}.",
        examples=["medium"],
    )
    cluster: SiteName | None = Field(
        default=None,
        description=f"A site to begin from: {', '.join(sites.names())}.",
        examples=["raven"],
    )
    name: str | None = Field(
        default=None,
        pattern=patterns.WORD,
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
    gpus_per_node: Annotated[int, Field(ge=1, le=99)] | Annotated[str, Field(pattern=patterns.GPUS)] | None = Field(
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
        pattern=patterns.MEMORY,
        description="Memory for each CPU: a whole number and K, M, G or T.",
        examples=["8G"],
    )
    memory_per_node: str | None = Field(
        default=None,
        pattern=patterns.MEMORY,
        description="Memory for each node: a whole number and K, M, G or T.",
        examples=["500000M"],
    )
    time_limit: str = Field(
        default="01:00:00",
        pattern=patterns.TIME,
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
        pattern=patterns.WORDS,
        max_length=256,
        description="Partition, or several with commas; at most 256 letters, digits, dots, dashes.",
        examples=["compute"],
    )
    account: str | None = Field(
        default=None, pattern=patterns.WORD, description="Account that the job is charged to.", examples=["my-project"]
    )
    qos: str | None = Field(default=None, pattern=patterns.WORD, description="Quality of service.", examples=["normal"])
    constraint: str | None = Field(
        default=None,
        pattern=patterns.FEATURES,
        max_length=256,
        description="Features of the nodes, joined by & (and) or | (or); at most 256 characters.",
        examples=["a100"],
    )
    network_interface: str | None = Field(
        default=None,
        pattern=patterns.INTERFACES,
        max_length=256,
        description="Network interface between the nodes, or several with commas, as `ip -brief address` shows them on "
        "a node: for NCCL and for gloo under PyTorch, which choose by themselves without it.",
        examples=["ib0"],
    )
    modules_to_load: list[Annotated[str, Field(pattern=patterns.MODULE, max_length=128)]] = Field(
        default_factory=list,
        max_length=64,
        description="Environment modules to load, in this order: a list of names.",
        examples=[["python/3.11", "gcc/11.2.0"]],
    )
    virtual_environment: str | None = Field(
        default=None,
        pattern=patterns.PLACE,
        max_length=patterns.MAX_TEXT,
        description="Virtual environment of Python that all nodes see. It may begin with ~ or a variable.",
        examples=["~/jax-env"],
    )
    conda_environment: str | None = Field(
        default=None,
        pattern=patterns.CONDA,
        max_length=patterns.MAX_TEXT,
        description="Conda environment that all nodes see, with the folder of conda before /envs/, as `conda env list` "
        "shows it. It may begin with ~ or a variable.",
        examples=["~/miniforge3/envs/torch-env"],
    )
    container_image: str | None = Field(
        default=None,
        pattern=patterns.PLACE,
        max_length=patterns.MAX_TEXT,
        description="Apptainer image to run in. It may begin with ~ or a variable, such as one that a module sets.",
        examples=["$JAX_IMAGE"],
    )
    # [/site]

    # [run]
    env_vars: Annotated[
        dict[Annotated[str, Field(pattern=patterns.VARIABLE, max_length=128)], Text], AfterValidator(_free_names)
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
        pattern=patterns.OUTPUT,
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
        pattern=patterns.SIGNAL,
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
        return self.name or (stem if re.fullmatch(patterns.WORD, stem) else "job")

    @property
    def seconds(self) -> int:
        """Time limit in seconds."""
        days, _, rest = self.time_limit.rpartition("-")
        hours, minutes, seconds = map(int, rest.split(":"))
        return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds

    @model_validator(mode="after")
    def _consistent(self) -> JobSpecification:
        found = contradiction(self)
        if found:
            raise PydanticCustomError("contradiction", "{text}", {"key": found[0], "text": found[1]})
        return self
