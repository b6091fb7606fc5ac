"""The sections of a cluster's configuration: groups of nodes, partitions, QOS, accounts, users, mounts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

GENERATIONS = {"22.05": "bookworm", "24.11": "trixie", "26.05": "sid"}
"""Each generation of Slurm, and the Debian suite that packages it."""

NEWEST = "newest"
"""The version in Debian sid today; every stamp says which version it was."""

SUITES = {**GENERATIONS, NEWEST: "sid"}
"""Debian suite of whatever may be asked for."""

USER = "alice"
"""The ordinary user, who submits jobs."""

SECOND_USER = "bob"
"""Another ordinary user, who must not see what the first one does."""

USER_IDS = {USER: 20001, SECOND_USER: 20002}
"""Numbers of the users that every root has: high ones, so that they are nobody on the host."""

CLUSTER_NAME = r"^[a-z][a-z0-9-]{0,31}$"
NAME = r"^[A-Za-z][A-Za-z0-9_.-]{0,31}$"
LOWER_NAME = r"^[a-z][a-z0-9_-]{0,30}$"
TRES = r"^(?:cpu|mem|node|billing|gres/[a-z][a-z0-9_]{0,31}(?::[A-Za-z][A-Za-z0-9_.-]{0,31})?)$"
WORD = r"^[A-Za-z][A-Za-z0-9_]{0,63}$"

Name = Annotated[str, Field(pattern=NAME)]
Feature = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")]
Gres = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}(?::[A-Za-z][A-Za-z0-9_.-]{0,31})?:[1-9][0-9]{0,3}$")]
Memory = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,8}[MGT]$")]
Time = Annotated[str, Field(pattern=r"^(?:(?:[0-9]{1,3}-)?[0-9]{1,2}:[0-5][0-9]:[0-5][0-9]|UNLIMITED)$")]
Seconds = Annotated[int, Field(ge=0, le=86400)]
Count = Annotated[int, Field(ge=0, le=10**9)]
Limits = dict[Annotated[str, Field(pattern=TRES)], Count]
Options = dict[Annotated[str, Field(pattern=WORD)], Annotated[str, Field(pattern=r"^[^\s'\"]{1,512}$")]]
Lines = Annotated[str, AfterValidator(lambda text: text if not text or text.endswith("\n") else text + "\n")]


def field(description: str, example: Any, default: Any = ..., **more: Any) -> Any:
    """Return a field of a model; a default that can be called makes the default."""
    how: dict[str, Any] = {"default_factory": default} if callable(default) else {"default": default}
    return Field(description=description, examples=[example], **how, **more)


def own_words(of: str, example: dict[str, str]) -> Any:
    """Return the field for what Slurm knows about a section and this model does not."""
    return field(f"More of Slurm's settings for {of}, which Slurm checks.", example, dict)


def schema_of(model: type[BaseModel], mode: Literal["validation", "serialization"]) -> dict[str, Any]:
    """Return the JSON Schema of a model without titles, which only repeat the names of fields."""
    schema = model.model_json_schema(by_alias=True, mode=mode)
    for part in [schema, *schema.get("$defs", {}).values()]:
        for value in part.get("properties", {}).values():
            value.pop("title", None)
            if "patternProperties" in value:
                value["additionalProperties"] = False
    return schema


class Section(BaseModel):
    """A part of a specification: it cannot be changed, and knows its keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NodeGroup(Section):
    """Nodes that are alike."""

    count: int = field("Number of nodes, 1 to 256.", 2, ge=1, le=256)
    cpus: int = field("CPUs that each node claims, 1 to 1024.", 64, 16, ge=1, le=1024)
    memory: Memory = field("Memory that each node claims: a number and M, G or T.", "512G", "64G")
    gres: tuple[Gres, ...] = field(
        "Generic resources of each node: name, type and number, in Slurm's notation. "
        "GPUs are files that Slurm counts; they can't compute.",
        ["gpu:a100:4"],
        (),
    )
    features: tuple[Feature, ...] = field("Features for --constraint.", ["a100", "ib"], ())
    options: Options = own_words("NodeName", {"Weight": "10"})

    @property
    def memory_mib(self) -> int:
        """Return the memory of each node, in MiB."""
        return int(self.memory[:-1]) * {"M": 1, "G": 2**10, "T": 2**20}[self.memory[-1]]

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

    nodes: tuple[str, ...] | None = field(
        "Its nodes: names of groups, or nodes in Slurm's notation; by default all nodes.",
        ["a100", "node[5-6]"],
        None,
        min_length=1,
    )
    default: bool = field(
        "Whether jobs without a partition go here; without any default, they go to the first one.", True, False
    )
    max_time: Time = field(
        "Longest time limit: hours:minutes:seconds, days-hours:minutes:seconds, or UNLIMITED.",
        "04:00:00",
        "1-00:00:00",
    )
    default_time: Time | None = field("Time limit of a job that doesn't set one.", "00:10:00", None)
    max_nodes: int | None = field("Most nodes that a job may have; it can be more than exist.", 2, None, ge=1, le=65533)
    priority_tier: int = field(
        "Jobs in a higher tier start first, and preempt jobs in a lower tier if preemption is by partition.",
        10,
        1,
        ge=0,
        le=65533,
    )
    preempt_mode: Literal["OFF", "REQUEUE", "CANCEL"] | None = field(
        "What happens to its jobs when other jobs preempt them.", "REQUEUE", None
    )
    grace_time: Seconds | None = field("Seconds that a preempted job has between the signal and its end.", 30, None)
    allow_accounts: tuple[Name, ...] = field("Accounts whose jobs may run here; by default all.", ["research"], ())
    qos: Name | None = field("QOS whose limits apply to the partition as a whole.", "short", None)
    exclusive: bool = field("Whether a job gets whole nodes, whatever it asks for.", True, False)
    options: Options = own_words("PartitionName", {"TRESBillingWeights": "CPU=1.0"})


class Preemption(Section):
    """Who preempts whom, and how."""

    by: Literal["partition", "qos", "none"] = field("What decides who preempts whom.", "qos", "partition")
    mode: Literal["REQUEUE", "CANCEL"] = field(
        "What happens to a preempted job, unless its partition sets this.", "CANCEL", "REQUEUE"
    )
    send_user_signal: bool = field("Whether a preempted job gets the signal from its option --signal.", True, False)


class Qos(Section):
    """A quality of service and its limits."""

    priority: int = field("Its priority.", 100, 0, ge=0, le=10**6)
    max_wall: Time | None = field("Longest time limit of a job.", "01:00:00", None)
    max_jobs_per_user: Count | None = field("Most running jobs of a user.", 2, None)
    max_submit_jobs_per_user: Count | None = field("Most pending and running jobs of a user.", 10, None)
    max_tres_per_job: Limits = field("Limits for one job, by resource.", {"node": 2}, dict)
    max_tres_per_user: Limits = field(
        "Limits for one user's running jobs together, by resource.", {"gres/gpu": 4}, dict
    )
    grp_tres: Limits = field("Limits for all its running jobs together, by resource.", {"cpu": 64}, dict)
    preempt: tuple[Name, ...] = field("QOS whose jobs it preempts, if preemption is by qos.", ["scavenger"], ())
    preempt_mode: Literal["CLUSTER", "REQUEUE", "CANCEL"] | None = field(
        "What happens to its jobs when other jobs preempt them.", "REQUEUE", None
    )
    grace_time: Seconds | None = field("Seconds that a preempted job has until its end.", 30, None)
    flags: tuple[Annotated[str, Field(pattern=WORD)], ...] = field(
        "Flags, as sacctmgr spells them.", ["DenyOnLimit"], ()
    )
    options: Options = own_words("a QOS of sacctmgr", {"UsageFactor": "0.5"})


class Account(Section):
    """An account and its limits."""

    parent: Name | None = field("The account that it's part of.", "physics", None)
    qos: tuple[Name, ...] = field("QOS that it may use; by default normal and all others.", ["short"], ())
    grp_tres: Limits = field("Limits for all its running jobs together, by resource.", {"gres/gpu": 8}, dict)
    options: Options = own_words("an account of sacctmgr", {"Fairshare": "10"})


class User(Section):
    """An ordinary user, with a home."""

    accounts: tuple[Name, ...] = field(
        "Accounts that the user may charge, by default all; jobs that don't name one use the first.", ["research"], ()
    )
    options: Options = own_words("a user of sacctmgr", {"MaxSubmitJobs": "20"})


class Mount(Section):
    """A folder of the host that every machine sees."""

    source: str = field(
        "The folder or file on your machine; a relative path starts at this file's folder.", "./data", min_length=1
    )
    writable: bool = field("Whether jobs may write there.", True, False)
