"""The sections of a cluster's configuration, and the generations of Slurm and users that every root has."""

from __future__ import annotations

from typing import Annotated, Any

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

Feature = Annotated[str, Field(pattern=r"^[^\s,]+$")]
Gres = Annotated[str, Field(pattern=r"^[A-Za-z]\w*(?::[^\s:,]+)?:[1-9][0-9]*$")]
Memory = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,8}[MGT]$")]
Lines = Annotated[str, AfterValidator(lambda text: text if not text or text.endswith("\n") else text + "\n")]


def field(description: str, example: Any, default: Any = ..., **more: Any) -> Any:
    """Return a field of a model; a default that can be called makes the default."""
    how: dict[str, Any] = {"default_factory": default} if callable(default) else {"default": default}
    return Field(description=description, examples=[example], **how, **more)


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
    options: str = field("More settings for the NodeName line of slurm.conf.", "Weight=10 MemSpecLimit=1024", "")

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


class Mount(Section):
    """A folder of the host that every machine sees."""

    source: str = field(
        "The folder or file on your machine; a relative path starts at this file's folder.", "./data", min_length=1
    )
    writable: bool = field("Whether jobs may write there.", True, False)
