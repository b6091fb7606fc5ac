"""The fields of a specification: the generation of Slurm, the nodes, and what a site has set up on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
)

from srunbook.cluster._errors import SpecificationError
from srunbook.cluster._sections import (
    LOWER_NAME,
    Account,
    Feature,
    Lines,
    Memory,
    Mount,
    Name,
    NodeGroup,
    Partition,
    Preemption,
    Qos,
    User,
    listed,
)
from srunbook.cluster._values import GENERATIONS, NEWEST, check_name, parse_rate, suite_of

SCHEMA_URL = "https://srunbook.readthedocs.io/en/latest/_static/cluster.schema.json"
"""Where editors find the schema."""

MAX_NODES = 256
"""Nodes of a cluster, at most."""


def _generation(value: Any) -> Any:
    """Take 22.05, which YAML reads as a number, for the text that is meant."""
    return f"{value:.2f}" if isinstance(value, float) else value


def _form(value: Any) -> str:
    return "groups" if isinstance(value, dict) else "number"


Nodes = Annotated[
    Annotated[int, Field(ge=1, le=MAX_NODES), Tag("number")]
    | Annotated[dict[Annotated[str, Field(pattern=LOWER_NAME)], NodeGroup], Field(min_length=1), Tag("groups")],
    Discriminator(_form),
]


def _partitions() -> dict[str, Partition]:
    off: dict[str, Any] = {"priority_tier": 10, "preempt_mode": "OFF"}
    return {
        "batch": Partition(default=True, **off),
        "gpu": Partition(**off),
        "cpu": Partition(**off),
        "debug": Partition(max_time="00:30:00", **{**off, "priority_tier": 20}),
        "preempt": Partition(priority_tier=1, preempt_mode="REQUEUE"),
    }


class Fields(BaseModel):
    """The fields of a specification, each checked by itself."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        validate_by_name=True,
        title="A cluster for srunbook cluster up",
        json_schema_extra={"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_URL},
    )

    name: str = Field(
        default="srunbook",
        description="What it is called; clusters of different names can run at once.",
        examples=["trial"],
    )
    slurm: Annotated[str, BeforeValidator(_generation)] = Field(
        default=NEWEST,
        description=f"Generation of Slurm: {', '.join([*GENERATIONS, NEWEST])}.",
        examples=["22.05"],
        json_schema_extra={"type": ["string", "number"]},
    )
    nodes: Nodes = Field(
        default=4,
        description="The nodes: a number from 1 to 256, where all are alike, or groups by name.",
        examples=[4],
    )
    cpus: int = Field(
        default=16,
        ge=1,
        le=1024,
        description="CPUs that each node claims, 1 to 1024, where all nodes are alike.",
        examples=[16],
    )
    memory: Memory = Field(
        default="64G", description="Memory that each node claims, where all are alike.", examples=["64G"]
    )
    gpus_per_node: int = Field(
        default=4,
        ge=0,
        le=16,
        description="GPUs that each node claims, 0 to 16, where all are alike.",
        examples=[4],
    )
    features: tuple[Feature, ...] = listed(
        default=("a100",),
        description="Features of the nodes, where all are alike; the first one is also the type of the GPUs.",
        examples=[["a100", "ib"]],
    )
    cpu_quota: float | None = Field(
        default=None, ge=0.05, le=64, description="CPUs that each node really may use, 0.05 to 64.", examples=[0.5]
    )
    link: str | None = Field(
        default=None, description="Rate of each node's link, 100kbit to 40gbit.", examples=["1gbit"]
    )
    partitions: dict[Name, Partition] = Field(
        default_factory=_partitions,
        min_length=1,
        description="The partitions, by name. By default batch, gpu, cpu, debug and preempt.",
        examples=[{"long": {"max_time": "7-00:00:00"}}],
    )
    preemption: Preemption = Field(
        default_factory=Preemption, description="Who preempts whom, and how.", examples=[{"send_user_signal": True}]
    )
    qos: dict[Name, Qos] = Field(
        default_factory=dict,
        description="Qualities of service, by name; normal is there in any case.",
        examples=[{"short": {"max_wall": "01:00:00"}}],
    )
    accounts: dict[Name, Account] = Field(
        default_factory=lambda: {"research": Account(), "my-project": Account()},
        min_length=1,
        description="The accounts, by name. By default research and my-project.",
        examples=[{"physics": {"qos": ["short"]}}],
    )
    users: dict[Annotated[str, Field(pattern=LOWER_NAME)], User] = Field(
        default_factory=lambda: {"alice": User(), "bob": User()},
        min_length=1,
        description="The users, by name. By default alice and bob.",
        examples=[{"alice": {"accounts": ["physics"]}}],
    )
    slurm_conf: Lines = Field(
        default="",
        alias="slurm.conf",
        description="Own lines of slurm.conf, after those of the cluster; Slurm judges them.",
        examples=["MaxArraySize=2001\n"],
    )
    cgroup_conf: Lines = Field(
        default="", alias="cgroup.conf", description="Own lines of cgroup.conf.", examples=["AllowedRAMSpace=90\n"]
    )
    gres_conf: Lines = Field(
        default="",
        alias="gres.conf",
        description="Own lines of gres.conf.",
        examples=["AutoDetect=off\n"],
    )
    prolog: Lines = Field(
        default="",
        description="Script that runs as root on each node before a job's first process there.",
        examples=['#!/bin/sh\nmkdir -p "/tmp/job-$SLURM_JOB_ID"\n'],
    )
    epilog: Lines = Field(
        default="",
        description="Script that runs as root on each node after a job.",
        examples=['#!/bin/sh\nrm -rf "/tmp/job-$SLURM_JOB_ID"\n'],
    )
    task_prolog: Lines = Field(
        default="",
        description="Script that runs as the user before each task; what it prints as export NAME=value reaches the "
        "task.",
        examples=['#!/bin/sh\necho "export SLURM_TMPDIR=/tmp/job-$SLURM_JOB_ID"\n'],
    )
    modules: dict[
        Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*(?:/[A-Za-z0-9][A-Za-z0-9._+-]*)?$")], Lines
    ] = Field(
        default_factory=dict,
        description="Environment modules: texts of modulefiles, by name.",
        examples=[{"cuda/12.4": "#%Module\nsetenv CUDA_HOME /usr/local/cuda\n"}],
    )
    packages: tuple[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]{1,63}$")], ...] = listed(
        default=(),
        max_length=100,
        description="Packages of Debian that every machine has besides those of Slurm. "
        "Each list makes a root of its own, once.",
        examples=[["git", "python3-venv"]],
    )
    mounts: dict[Annotated[str, Field(pattern=r"^/[A-Za-z0-9._/-]{1,255}$")], Mount] = Field(
        default_factory=dict,
        description="Folders of the host, by the path at which all machines see them.",
        examples=[{"/shared": {"source": "./data", "writable": True}}],
    )
    environments: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")], str] = Field(
        default_factory=dict,
        description="Further Python environments of the host: each is seen at its own path, as a name in every home, "
        "and as an environment module of that name.",
        examples=[{"torch-2.8": "/opt/envs/torch-2.8"}],
    )

    @field_validator("name")
    @classmethod
    def _name(cls, name: str) -> str:
        _told(check_name, name)
        return name

    @field_validator("slurm")
    @classmethod
    def _slurm(cls, slurm: str) -> str:
        _told(suite_of, slurm)
        return slurm

    @field_validator("link")
    @classmethod
    def _link(cls, link: str | None) -> str | None:
        if link is not None:
            _told(parse_rate, link)
        return link


def _told(check: Callable[[str], object], value: str) -> None:
    """Turn the error of a check into one that pydantic gathers."""
    try:
        check(value)
    except SpecificationError as error:
        raise ValueError(str(error)) from None
