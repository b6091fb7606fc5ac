"""Colours a job script's `#SBATCH` lines as what they are to Slurm: directives, not comments."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pygments.lexer import bygroups, inherit
from pygments.lexers.shell import BashLexer
from pygments.token import Comment, Keyword, Name, Operator, String, Text

if TYPE_CHECKING:
    from sphinx.application import Sphinx


class JobScriptLexer(BashLexer):  # type: ignore[misc]
    """Bash whose directives to Slurm are coloured: the option, its value, and a comment behind it.

    >>> [value for kind, value in JobScriptLexer().get_tokens("#SBATCH --nodes=2  # EDIT") if value.strip()]
    ['#SBATCH', '--nodes', '=', '2', '# EDIT']
    """

    name = "Slurm job script"
    aliases: ClassVar = ["sbatch"]
    filenames: ClassVar = ["*.sbatch"]
    priority = 0
    tokens: ClassVar = {
        "root": [
            (
                r"^(#SBATCH)([ \t]+)(--?[\w-]+)(?:(=|[ \t]+)([^\s#]\S*))?([ \t]*)(#.*)?$",
                bygroups(Keyword, Text, Name.Attribute, Operator, String, Text, Comment.Single),
            ),
            inherit,
        ]
    }


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the lexer."""
    app.add_lexer("sbatch", JobScriptLexer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
