"""The slurm tier: what a job script has to show for itself.

Needs Linux and root. `--slurm` chooses the generation (22.05 by default, `all` for every one); `--record` writes what
the scripts printed beside them, in place of comparing it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from support.proof import check_entry

from srunbook import cluster
from srunbook.cluster import State


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of clusters of their own on every chosen generation; those of the common one do so already."""
    names = set(metafunc.fixturenames)
    marked = {name for mark in metafunc.definition.iter_markers("parametrize") for name in _names(mark.args[0])}
    if "generation" in names - marked and not {"slurm", "script"} & names:
        chosen = metafunc.config.getoption("--slurm")
        metafunc.parametrize("generation", list(cluster.GENERATIONS) if chosen == "all" else [chosen], scope="module")


def _names(given: str | tuple[str, ...]) -> list[str]:
    """Return the names that a parametrization gives values."""
    return [name.strip() for name in given.split(",")] if isinstance(given, str) else [*given]


@pytest.fixture
def entry(slurm: State, recorded: Callable[..., None]) -> Callable[..., None]:
    """Compare what was printed with the recording of an entry's script, or write it."""
    return partial(check_entry, recorded, slurm)
