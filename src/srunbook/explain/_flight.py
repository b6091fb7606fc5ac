"""Read dumps of PyTorch's flight recorder: the collectives that each rank came to.

The recorder keeps the last collectives of a rank. A dump is its JSON, of `torch._C._distributed_c10d`'s
`_dump_fr_trace_json()`; it names no rank, so the name of its file has to. Pickles are refused: reading one can run
any program.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from srunbook._files import read_blocks
from srunbook.explain._reading import unpack
from srunbook.explain._scan import RANK_OF_NAME

VERSION = "2.10"
"""The format of PyTorch 2.13."""

LARGEST = 2**25
"""Bytes of a dump. Its entries take about 1 kB each, and by default the recorder keeps 2000."""

BEGINS = re.compile(rb'\s*\{\s*"(?:comm_lib_version|entries|nccl_comm_state|nccl_version|pg_config|pg_status)"\s*:')
PICKLE = re.compile(rb"\x80[\x02-\x05]")

SAME_SIZES = ("all_reduce", "broadcast")
"""Collectives in which the tensors of all ranks have the same size."""


class DumpError(ValueError):
    """A file is a dump, and cannot be used; the text says why."""


@dataclass(frozen=True)
class Collective:
    """A collective that a rank came to.

    Args:
        number: Its number in its group, from 1.
        name: Backend and operation, such as `gloo:all_reduce`.
        sizes: Shapes of the tensors that go in.
        done: Whether the rank has left it.
        created: When the rank came to it, in nanoseconds since 1970.
    """

    number: int
    name: str
    sizes: tuple[tuple[int, ...], ...] = ()
    done: bool = True
    created: int = 0

    def __str__(self) -> str:
        """Return it as people name it.

        >>> print(Collective(12, "gloo:all_reduce", ((4, 3),)))
        12, gloo:all_reduce of [4, 3]
        """
        sizes = " and ".join(str([*shape]) for shape in self.sizes)
        return f"{self.number}, {self.name}{f' of {sizes}' if sizes else ''}"

    @property
    def kind(self) -> tuple[object, ...]:
        """Return what it has in common with the same collective of another rank."""
        return (self.name, self.sizes) if self.name.endswith(SAME_SIZES) else (self.name,)


@dataclass(frozen=True)
class Dump:
    """What the recorder of one rank held.

    Args:
        name: Name of the file.
        rank: The rank.
        groups: The collectives of each process group by number.
        named: Ranks that its groups name.
        problem: What may be wrong with it; empty otherwise.
    """

    name: str
    rank: int
    groups: Mapping[str, Mapping[int, Collective]]
    named: frozenset[int] = frozenset()
    problem: str = ""


@dataclass(frozen=True)
class Recorded:
    """The dumps among some files.

    Args:
        dumps: Those that could be read, by rank.
        paths: The files that are dumps, readable or not.
        problems: A sentence for each that could not be read as a whole, by file.
    """

    dumps: Mapping[int, Dump] = field(default_factory=dict)
    paths: frozenset[Path] = frozenset()
    problems: Sequence[tuple[Path, str]] = ()


def read_dumps(paths: Iterable[Path]) -> Recorded:
    """Read the files that are dumps; the others are somebody else's.

    Args:
        paths: Files of any kind. What cannot be opened is no dump.
    """
    dumps: dict[int, Dump] = {}
    found, problems = set[Path](), list[tuple[Path, str]]()
    for path in paths:
        try:
            dump = read_dump(path)
        except DumpError as error:
            found.add(path)
            problems.append((path, str(error)))
            continue
        except (OSError, ValueError):
            continue
        if dump is None:
            continue
        found.add(path)
        if dump.problem:
            problems.append((path, dump.problem))
        if dump.rank in dumps:
            problems.append((path, f"a second dump of rank {dump.rank}: only {dumps[dump.rank].name} was used"))
        dumps.setdefault(dump.rank, dump)
    return Recorded(dict(sorted(dumps.items())), frozenset(found), problems)


def read_dump(path: Path) -> Dump | None:
    """Read a dump, which may be gzipped.

    Returns:
        What it holds, or None for a file that is no dump.

    Raises:
        DumpError: It is one, and cannot be used.
        OSError: The file cannot be read.
    """
    damage: list[str] = []
    content = bytearray()
    for block in unpack(read_blocks(path), damage):
        content += block
        if PICKLE.match(content):
            raise DumpError(
                "a pickle, which can run any program when it is read: dump JSON as the page says, or ask torchfrtrace"
            )
        if len(content) > 64 and not BEGINS.match(content):
            return None
        if len(content) > LARGEST:
            raise DumpError(f"a dump of more than {LARGEST >> 20} MiB, and not read: set TORCH_FR_BUFFER_SIZE=2000")
    if not BEGINS.match(content):
        return None
    named = RANK_OF_NAME.search(path.name)
    if not named:
        raise DumpError("a dump whose name tells no rank: call it rank_3.json if rank 3 wrote it")
    try:
        told = json.loads(content)
    except (ValueError, RecursionError):
        raise DumpError("the dump is cut off or damaged: nothing in it was read") from None
    return _parsed(told, path.name, int(named[1]))


def _parsed(told: dict[str, Any], name: str, rank: int) -> Dump:
    """Check a dump field by field."""
    version = told.get("version")
    entries = told.get("entries", [])
    groups: dict[str, dict[int, Collective]] = {}
    try:
        for entry in entries:
            if not entry.get("is_p2p"):
                collective = _collective(entry)
                groups.setdefault(_group(*entry["process_group"]), {})[collective.number] = collective
        named = frozenset(rank for group in told.get("pg_config", {}).values() for rank in json.loads(group["ranks"]))
        if not all(isinstance(rank, int) for rank in named):
            raise TypeError("pg_config")
    except (KeyError, TypeError, ValueError, AttributeError):
        raise DumpError(
            f"a dump of version {version} in another form, expected {VERSION} of PyTorch 2.13: nothing in it was read"
        ) from None
    other = f"a dump of version {version}, expected {VERSION} of PyTorch 2.13: read as if it were one"
    return Dump(name, rank, groups, named, "" if version == VERSION else other)


def _group(name: str, description: str) -> str:
    """Return what a process group is called: new ones are `undefined` until somebody describes them."""
    return description if description not in ("", "undefined") else f"group {name}"


def _collective(entry: Mapping[str, Any]) -> Collective:
    number, name, created = entry["collective_seq_id"], entry["profiling_name"], entry["time_created_ns"]
    sizes = tuple(tuple(int(length) for length in shape) for shape in entry["input_sizes"])
    if not (isinstance(number, int) and isinstance(name, str) and isinstance(created, int)):
        raise TypeError("an entry is not in its form")
    # gloo leaves the state at `scheduled`, and retires what is done; NCCL does both.
    return Collective(number, name, sizes, bool(entry["retired"]) or entry["state"] == "completed", created)
