"""The slurm tier: what a job script has to show for itself.

Needs Linux and root. `--slurm` chooses the generation (22.05 by default, `all` for every one); `--record` writes what
the scripts printed beside them, in place of comparing it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from support.proof import check_entry

from srunbook.cluster import State


@pytest.fixture
def entry(slurm: State, recorded: Callable[..., None]) -> Callable[..., None]:
    """Compare what was printed with the recording of an entry's script, or write it."""
    return partial(check_entry, recorded, slurm)
