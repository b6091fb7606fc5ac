"""Read a job script."""

from __future__ import annotations

from dataclasses import dataclass

from srunbook.script._errors import ScriptError
from srunbook.script._options import Option, options, table
from srunbook.script._words import DirectiveLine, directive_lines


@dataclass(frozen=True)
class Script:
    """A job script.

    Args:
        data: Its bytes.
        lines: The lines with directives, up to the first command.
        options: The options in them, in their order; where one is given twice, sbatch takes the later.
    """

    data: bytes
    lines: tuple[DirectiveLine, ...]
    options: tuple[Option, ...]

    def last(self, *names: str) -> Option | None:
        """Return the option that counts: the last of these names."""
        return next((option for option in reversed(self.options) if option.name in names), None)

    def line_at(self, offset: int) -> int:
        """Return the line of an offset, from 1."""
        return self.data.count(b"\n", 0, offset) + 1

    def line_span(self, offset: int) -> tuple[int, int]:
        """Return where the line of an offset begins, and where the next one does."""
        end = self.data.find(b"\n", offset)
        return self.data.rfind(b"\n", 0, offset) + 1, len(self.data) if end < 0 else end + 1

    def text(self, line: int) -> str:
        """Return a line, without its end and trailing white space."""
        return self.data.split(b"\n")[line - 1].decode("utf-8", "replace").rstrip()


def parse(data: bytes, generation: str | None = None) -> Script:
    """Read a job script as sbatch does.

    Args:
        data: Its bytes. Ends of lines may be those of DOS, although sbatch refuses them.
        generation: The generation of Slurm to read it as; by default the options are those of all recorded ones, and
            what they read in different ways is refused.

    Raises:
        ScriptError: It does not begin with `#!`, has a NUL, or a directive that sbatch refuses.
    """
    if not data.startswith(b"#!"):
        raise ScriptError(1, "a job script begins with #! and a shell, as in #!/bin/bash. Add that line")
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise ScriptError(line, "a NUL character, which Slurm refuses. Save the script as text")
    lines = tuple(directive_lines(data, generation))
    found = options([word for line in lines for word in line.words], table(generation))
    return Script(data, lines, tuple(found))
