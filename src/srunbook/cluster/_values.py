"""Values that a specification is made of: names, amounts of memory, rates, and how each is written."""

from __future__ import annotations

import re

from srunbook.cluster._errors import SpecificationError

GENERATIONS = {"22.05": "bookworm", "24.11": "trixie", "26.05": "sid"}
"""Generation of Slurm, and the Debian suite whose packages hold it."""

NEWEST = "newest"
"""Whatever sid holds today; every stamp says which version that was."""

MEMORY_RANGE_MIB = (512, 16 * 1024 * 1024)
"""Memory that a node may claim, in MiB: 512 MiB to 16 TiB."""

_UNITS = {"M": 1, "G": 1024, "T": 1024 * 1024}


def suite_of(slurm: str) -> str:
    """Return the Debian suite that holds a generation of Slurm.

    Raises:
        SpecificationError: The generation is unknown.

    >>> suite_of("22.05")
    'bookworm'
    """
    if slurm == NEWEST:
        return "sid"
    if slurm not in GENERATIONS:
        known = ", ".join([*GENERATIONS, NEWEST])
        raise SpecificationError(f"unknown generation of Slurm {slurm!r}: choose one of {known}, as in --slurm 22.05")
    return GENERATIONS[slurm]


def parse_memory(text: str) -> int:
    """Read an amount of memory.

    Args:
        text: A whole number with the unit M, G or T.

    Returns:
        The amount in MiB.

    Raises:
        SpecificationError: It is not of that form, or out of range.

    >>> parse_memory("64G")
    65536
    """
    match = re.fullmatch(r"(\d{1,12})([MGT])", text)
    lowest, highest = MEMORY_RANGE_MIB
    if not match:
        raise SpecificationError(f"memory {text!r} is not a whole number with the unit M, G or T, as in --memory 64G")
    mebibytes = int(match[1]) * _UNITS[match[2]]
    if not lowest <= mebibytes <= highest:
        raise SpecificationError(f"memory {text!r}: allowed are {lowest}M to {highest // 1024**2}T, as in --memory 64G")
    return mebibytes


def parse_rate(text: str) -> str:
    """Check the rate of a link, as `tc` takes it.

    Raises:
        SpecificationError: It is not a whole number of kbit, mbit or gbit, or is out of range.

    >>> parse_rate("100mbit")
    '100mbit'
    """
    match = re.fullmatch(r"(\d{1,9})(kbit|mbit|gbit)", text)
    bits = int(match[1]) * {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}[match[2]] if match else 0
    if not 100_000 <= bits <= 40 * 10**9:
        raise SpecificationError(f"link {text!r}: a rate is 100kbit to 40gbit, as in --link 100mbit")
    return text


def check_name(name: str) -> str:
    """Check the name of a cluster.

    Raises:
        SpecificationError: It is not 1 to 32 lower-case letters, digits or hyphens, beginning with a letter.
    """
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,31}", name):
        raise SpecificationError(
            f"name {name!r}: a cluster's name has 1 to 32 lower-case letters, digits or hyphens "
            "and begins with a letter, as in --name trial"
        )
    return name
