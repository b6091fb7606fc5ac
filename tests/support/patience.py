"""How long a test waits for a condition."""

PATIENCE = 400.0
"""Seconds a test waits for a condition before it fails and names it. Waiting costs nothing when the condition holds.

It is less than pytest's own limit (`timeout` in pyproject.toml), which stops a test without saying what was missing.
"""
