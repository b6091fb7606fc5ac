"""srunbook: multi-node training on Slurm, where every script on the page has run.

Each room is a module of its own and is imported by name, so that this import stays cheap::

    from srunbook import simulate, slurm
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
