"""The sections of a cluster's specification: groups of nodes, partitions, QOS, accounts, users, mounts."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from srunbook.cluster._errors import SpecificationError
from srunbook.cluster._values import parse_memory

NAME = r"^[A-Za-z][A-Za-z0-9_.-]{0,31}$"
LOWER_NAME = r"^[a-z][a-z0-9_-]{0,30}$"
FEATURE = r"^[a-z0-9][a-z0-9_-]{0,31}$"
GRES = r"^[a-z][a-z0-9_]{0,31}(?::[A-Za-z][A-Za-z0-9_.-]{0,31})?:[1-9][0-9]{0,3}$"
TIME = r"^(?:(?:[0-9]{1,3}-)?[0-9]{1,2}:[0-5][0-9]:[0-5][0-9]|UNLIMITED)$"
TRES = r"^(?:cpu|mem|node|billing|gres/[a-z][a-z0-9_]{0,31}(?::[A-Za-z][A-Za-z0-9_.-]{0,31})?)$"
WORD = r"^[A-Za-z][A-Za-z0-9_]{0,63}$"
VALUE = r"^[^\s\u0000-\u001f\u007f'\"]{1,512}$"


def _memory(text: str) -> str:
    try:
        parse_memory(text)
    except SpecificationError as error:
        raise ValueError(str(error)) from None
    return text


def _feature(text: str) -> str:
    if not re.fullmatch(FEATURE, text):
        raise ValueError(
            f"feature {text!r}: a feature has up to 32 lower-case letters, digits, underscores "
            "or dashes and begins with a letter or digit, as in --features a100,gpu-bw"
        )
    return text


def _lines(text: str) -> str:
    if any(ord(letter) < 32 and letter not in "\t\n" for letter in text):
        raise ValueError("the text has a control character: write it as a block, which begins with |")
    return text if text.endswith("\n") or not text else text + "\n"


Name = Annotated[str, Field(pattern=NAME)]
Feature = Annotated[str, AfterValidator(_feature)]
Gres = Annotated[str, Field(pattern=GRES)]
Memory = Annotated[str, AfterValidator(_memory)]
Lines = Annotated[str, Field(max_length=65536), AfterValidator(_lines)]
Count = Annotated[int, Field(ge=0, le=10**9)]
Limits = dict[Annotated[str, Field(pattern=TRES)], Count]
Options = dict[Annotated[str, Field(pattern=WORD)], Annotated[str, Field(pattern=VALUE)]]


def listed(**more: Any) -> Any:
    """Return a field that takes a list; YAML gives lists, and Python code may give tuples."""
    return Field(strict=False, **more)


def own_words(of: str, example: dict[str, str]) -> Any:
    """Return the field for what Slurm knows about a section and this model does not."""
    return Field(
        default_factory=dict,
        description=f"More of Slurm's own words for {of}, which Slurm judges.",
        examples=[example],
    )


class Section(BaseModel):
    """A part of a specification: it cannot be changed, and knows its keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class NodeGroup(Section):
    """Nodes that are alike."""

    count: int = Field(ge=1, le=256, description="How many nodes, 1 to 256.", examples=[2])
    cpus: int = Field(default=16, ge=1, le=1024, description="CPUs that each of them claims, 1 to 1024.", examples=[64])
    memory: Memory = Field(
        default="64G", description="Memory that each claims, 512M to 16T: a number and M, G or T.", examples=["512G"]
    )
    gres: tuple[Gres, ...] = listed(
        default=(),
        description="Generic resources of each: name, type and number, as Slurm writes them. "
        "GPUs are files that Slurm counts and nothing can compute on.",
        examples=[["gpu:a100:4"]],
    )
    features: tuple[Feature, ...] = listed(
        default=(), description="Features for --constraint.", examples=[["a100", "ib"]]
    )
    options: Options = own_words("NodeName", {"Weight": "10"})

    @property
    def memory_mib(self) -> int:
        """Return the memory of each node, in MiB."""
        return parse_memory(self.memory)

    @property
    def gpus(self) -> int:
        """Return the number of GPUs of each node, of all types."""
        return sum(number for name, _, number in self.resources if name == "gpu")

    @property
    def resources(self) -> list[tuple[str, str, int]]:
        """Return name, type and number of each generic resource; the type may be empty.

        >>> NodeGroup(count=1, gres=("gpu:a100:4", "licence:2")).resources
        [('gpu', 'a100', 4), ('licence', '', 2)]
        """
        parts = [text.split(":") for text in self.gres]
        return [(part[0], part[1] if len(part) == 3 else "", int(part[-1])) for part in parts]


class Partition(Section):
    """A partition and its limits."""

    nodes: tuple[str, ...] | None = listed(
        default=None,
        min_length=1,
        description="Its nodes: names of groups, or nodes as Slurm writes them; by default all.",
        examples=[["a100", "node[5-6]"]],
    )
    default: bool = Field(
        default=False, description="Whether jobs go here that name no partition; else the first one.", examples=[True]
    )
    max_time: str = Field(
        default="1-00:00:00",
        pattern=TIME,
        description="Longest time limit: hours, minutes and seconds, days before them, or UNLIMITED.",
        examples=["04:00:00"],
    )
    default_time: str | None = Field(
        default=None, pattern=TIME, description="Time limit of a job that asks for none.", examples=["00:10:00"]
    )
    min_nodes: int | None = Field(default=None, ge=0, le=256, description="Least nodes of a job.", examples=[1])
    max_nodes: int | None = Field(
        default=None, ge=1, le=65533, description="Most nodes of a job; also more than there are.", examples=[2]
    )
    priority_tier: int = Field(
        default=1,
        ge=0,
        le=65533,
        description="Jobs of a higher tier start first, and preempt those of a lower one where preemption is by "
        "partition.",
        examples=[10],
    )
    preempt_mode: Literal["OFF", "REQUEUE", "CANCEL"] | None = Field(
        default=None, description="What happens to its jobs when others preempt them.", examples=["REQUEUE"]
    )
    grace_time: int | None = Field(
        default=None,
        ge=0,
        le=86400,
        description="Seconds that a preempted job has between the signal and its end.",
        examples=[30],
    )
    allow_accounts: tuple[Name, ...] = listed(
        default=(), description="Accounts whose jobs are let in; by default all.", examples=[["research"]]
    )
    allow_qos: tuple[Name, ...] = listed(
        default=(), description="QOS whose jobs are let in; by default all.", examples=[["short"]]
    )
    qos: Name | None = Field(
        default=None, description="QOS whose limits hold for the partition as a whole.", examples=["short"]
    )
    exclusive: bool = Field(
        default=False, description="Whether a job gets whole nodes, whatever it asks for.", examples=[True]
    )
    options: Options = own_words("PartitionName", {"TRESBillingWeights": "CPU=1.0"})


class Preemption(Section):
    """Who preempts whom, and how."""

    by: Literal["partition", "qos", "none"] = Field(
        default="partition", description="What decides who preempts whom.", examples=["qos"]
    )
    mode: Literal["REQUEUE", "CANCEL"] = Field(
        default="REQUEUE",
        description="What happens to a preempted job, unless its partition says.",
        examples=["CANCEL"],
    )
    send_user_signal: bool = Field(
        default=False,
        description="Whether a job gets the signal of its option --signal when it is preempted.",
        examples=[True],
    )


class Qos(Section):
    """A quality of service and its limits."""

    priority: int = Field(default=0, ge=0, le=10**6, description="Its priority.", examples=[100])
    max_wall: str | None = Field(
        default=None, pattern=TIME, description="Longest time limit of a job.", examples=["01:00:00"]
    )
    max_jobs_per_user: Count | None = Field(default=None, description="Running jobs of a user, at most.", examples=[2])
    max_submit_jobs_per_user: Count | None = Field(
        default=None, description="Pending and running jobs of a user, at most.", examples=[10]
    )
    max_tres_per_job: Limits = Field(
        default_factory=dict, description="What one job may have, by resource.", examples=[{"node": 2}]
    )
    max_tres_per_user: Limits = Field(
        default_factory=dict,
        description="What the running jobs of one user may have together, by resource.",
        examples=[{"gres/gpu": 4}],
    )
    grp_tres: Limits = Field(
        default_factory=dict, description="What all its running jobs may have together.", examples=[{"cpu": 64}]
    )
    preempt: tuple[Name, ...] = listed(
        default=(), description="QOS whose jobs it preempts, where preemption is by qos.", examples=[["scavenger"]]
    )
    preempt_mode: Literal["CLUSTER", "REQUEUE", "CANCEL"] | None = Field(
        default=None, description="What happens to its jobs when others preempt them.", examples=["REQUEUE"]
    )
    grace_time: int | None = Field(
        default=None, ge=0, le=86400, description="Seconds that a preempted job has until its end.", examples=[30]
    )
    flags: tuple[Annotated[str, Field(pattern=WORD)], ...] = listed(
        default=(), description="Flags, as sacctmgr has them.", examples=[["DenyOnLimit"]]
    )
    options: Options = own_words("a QOS of sacctmgr", {"UsageFactor": "0.5"})


class Account(Section):
    """An account and its limits."""

    parent: Name | None = Field(default=None, description="Account that it is part of.", examples=["physics"])
    qos: tuple[Name, ...] = listed(
        default=(), description="QOS that it may use; by default normal and all others.", examples=[["short"]]
    )
    default_qos: Name | None = Field(
        default=None, description="QOS of its jobs that name none; by default normal.", examples=["short"]
    )
    max_jobs: Count | None = Field(default=None, description="Running jobs of each user in it, at most.", examples=[4])
    grp_tres: Limits = Field(
        default_factory=dict, description="What all its running jobs may have together.", examples=[{"gres/gpu": 8}]
    )
    options: Options = own_words("an account of sacctmgr", {"Fairshare": "10"})


class User(Section):
    """An ordinary user, with a home."""

    accounts: tuple[Name, ...] = listed(
        default=(), description="Accounts that the user may charge; by default all.", examples=[["research"]]
    )
    default_account: Name | None = Field(
        default=None, description="Account of jobs that name none; by default the first.", examples=["research"]
    )
    admin: Literal["None", "Operator", "Administrator"] = Field(
        default="None", description="What the user may change in Slurm.", examples=["Operator"]
    )
    options: Options = own_words("a user of sacctmgr", {"MaxSubmitJobs": "20"})


class Mount(Section):
    """A folder of the host that every machine sees."""

    source: str = Field(
        min_length=1,
        max_length=4096,
        description="The folder or file on the host; a relative path begins at the folder of this file.",
        examples=["./data"],
    )
    writable: bool = Field(default=False, description="Whether jobs may write there.", examples=[True])
