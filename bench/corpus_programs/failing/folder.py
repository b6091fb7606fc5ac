"""Open a folder as a file."""

from pathlib import Path

print(Path("/etc").read_text(encoding="utf-8"))
