"""The slurm tier: what a job script has to show for itself.

Needs Linux and root. `--slurm` chooses the generation (22.05 by default, `all` for every one); `--record` writes what
the scripts printed beside them, in place of comparing it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.proof import Proof

from srunbook.cluster import State


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give these tests time to make a root the first time."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture
def proof(slurm: State) -> Proof:
    """Judge jobs of the cluster."""
    return Proof(slurm)
