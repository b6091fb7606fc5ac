"""Room on the disk: what a cluster needs, and what is said when it runs out."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from srunbook.cluster._cache import FULL, cache_folder, make_folder
from srunbook.cluster._errors import ClusterError

ROOT_BYTES = 3 * 2**30
"""Room for one root: the finished one and what its making needs."""
RUN_BYTES = 512 * 2**20


def check_room(*, making_root: bool = False) -> None:
    """Check that the cache folder has room for a cluster.

    Args:
        making_root: Whether a root has to be made first.

    Raises:
        ClusterError: It has not.
    """
    folder = make_folder(cache_folder())
    needed = ROOT_BYTES if making_root else RUN_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ClusterError(
            f"{folder} has {free / 2**30:.1f} GiB free, and {needed / 2**30:.1f} GiB are needed: "
            "make room, or choose another folder with XDG_CACHE_HOME"
        )


@contextmanager
def reported() -> Iterator[None]:
    """Turn what the machine refuses into a sentence.

    Raises:
        ClusterError: Reading or writing failed, for want of room or for another reason.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise ClusterError(f"this machine refuses something that a cluster needs: {error}") from error
        raise ClusterError(
            f"{error.filename or cache_folder()}: no space is left. A cluster needs {RUN_BYTES / 2**30:.1f} GiB, the "
            f"making of a root {ROOT_BYTES / 2**30:.1f} GiB: make room, or choose another folder with XDG_CACHE_HOME"
        ) from error
