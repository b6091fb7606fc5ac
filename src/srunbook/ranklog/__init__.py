"""Rank lines: the line that every rank prints when it starts and when it ends.

A program needs no library to print them; one f-string each does it::

    print(f"rank {rank}/{world_size} start host={host} device={device}", flush=True)
    print(f"rank {rank}/{world_size} end steps={step} loss={loss:.4f}", flush=True)

This room reads them. Standard library only.
"""

from __future__ import annotations

from srunbook.ranklog._lines import RankEnd, RankLineError, RankStart, parse_rank_lines

__all__ = ["RankEnd", "RankLineError", "RankStart", "parse_rank_lines"]
