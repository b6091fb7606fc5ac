"""Run the command `srunbook`. Each subcommand lives in a module of its own and is imported when it is called."""

from __future__ import annotations

from srunbook.cli._main import main

__all__ = ["main"]
