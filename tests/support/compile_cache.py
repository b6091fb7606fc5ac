"""One cache of what JAX compiles, for all processes that tests start."""

from __future__ import annotations

from pathlib import Path

import pytest


def share_compile_cache(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let processes that are started from now on keep what JAX compiles in a folder.

    Args:
        patch: What takes it back.
        folder: A folder of this run alone.
    """
    patch.setenv("JAX_COMPILATION_CACHE_DIR", str(folder))
    # With any limit JAX locks the folder; without one a process may read an entry that another has half written.
    patch.setenv("JAX_COMPILATION_CACHE_MAX_SIZE", str(2**40))
    patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    patch.setenv("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
