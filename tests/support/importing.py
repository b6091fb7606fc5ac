"""Code to put at the top of a program: SIGUSR1 comes while the program imports a library."""

SIGNAL_AT_IMPORT = """\
import builtins, os, signal
whole_import = builtins.__import__
def signalled(name, *more):
    if name == "LIBRARY":
        builtins.__import__ = whole_import
        os.kill(os.getpid(), signal.SIGUSR1)
    return whole_import(name, *more)
builtins.__import__ = signalled
"""


def signal_at_import(library: str) -> str:
    """Return the code for one library, which the program imports by this name."""
    return SIGNAL_AT_IMPORT.replace("LIBRARY", library)
