"""Patterns that the texts of a job match. Nothing that they let through can make a line of its own in a script."""

from __future__ import annotations

MAX_TEXT = 4096
"""Characters of one argument or value."""

CONTROL = r"\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069"
NO_CONTROL = rf"[^{CONTROL}]"
"""Any character but those that end a line or turn the direction of the text."""

UNSEEN = r"\s\u200b-\u200f\u2060\ufeff"
"""Characters that nobody sees at the end of a path, and that come along when it is copied."""

END = rf"(?:{NO_CONTROL}*[^{CONTROL}{UNSEEN}])?"
"""The rest of a path: it ends in something that one can see."""

TEXT = rf"^{NO_CONTROL}*$"
PROGRAM = rf"^[^-~{CONTROL}{UNSEEN}]{END}$"
PLACE = rf"^(?:(?:~|\$[A-Za-z_][A-Za-z0-9_]*)(?:/{END})?|[A-Za-z0-9_./]{END})$"
CONDA = (
    rf"^(?:(?:~|\$[A-Za-z_][A-Za-z0-9_]*)(?:/{NO_CONTROL}*)?|[A-Za-z0-9_./]{NO_CONTROL}*)/envs/"
    r"[A-Za-z0-9][A-Za-z0-9._-]*$"
)
WORD = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
WORDS = r"^[A-Za-z0-9][A-Za-z0-9._-]*(?:,[A-Za-z0-9][A-Za-z0-9._-]*)*$"
FEATURES = r"^[A-Za-z0-9][A-Za-z0-9._-]*(?:[&|][A-Za-z0-9][A-Za-z0-9._-]*)*$"
INTERFACES = r"^[A-Za-z][A-Za-z0-9_.-]{0,14}(?:,[A-Za-z][A-Za-z0-9_.-]{0,14})*$"
MODULE = r"^[A-Za-z0-9][A-Za-z0-9._+/@-]*$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
MEMORY = r"^[1-9][0-9]{0,8}[KMGT]$"
TIME = r"^(?:[0-9]{1,3}-(?:[01]?[0-9]|2[0-3])|[0-9]{1,3}):[0-5][0-9]:[0-5][0-9]$"
GPUS = r"^(?:[A-Za-z][A-Za-z0-9_.-]*:)?[1-9][0-9]?$"
TO_65535 = "(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
SIGNAL = rf"^(?:HUP|INT|QUIT|USR1|USR2|TERM|CONT)@{TO_65535}$"
OUTPUT = r"^(?:[A-Za-z0-9_][A-Za-z0-9._-]*/)?(?:(?:[A-Za-z0-9_]|%x)(?:[A-Za-z0-9._-]|%x)*)?%j(?:[A-Za-z0-9._-]|%x)*$"
MAX_FILE_NAME = 255
"""Bytes of the name of a file on Linux."""
