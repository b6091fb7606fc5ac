"""srunbook: multi-node training on Slurm, where every script on the page has run.

Each room is a module of its own and is imported by name, so that this import stays cheap::

    from srunbook import simulate, slurm

`initialize_distributed` can be imported from here, too, since it is the first call of a program; it is loaded on use.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for true; importing `typing` would cost more than all the rest
if TYPE_CHECKING:
    from srunbook.distributed import initialize_distributed

__all__ = ["__version__", "initialize_distributed"]

__version__ = "1.0.0"


def __getattr__(name: str) -> object:
    if name == "initialize_distributed":
        from srunbook.distributed import initialize_distributed

        return initialize_distributed
    raise AttributeError(f"module 'srunbook' has no attribute {name!r}")
