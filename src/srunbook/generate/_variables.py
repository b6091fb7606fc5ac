"""Environment variables that a job must not set, because the shell, Slurm, a launcher or the script sets them."""

from __future__ import annotations

BASH_NAMES = frozenset(
    {
        "CDPATH",
        "COLUMNS",
        "COPROC",
        "DIRSTACK",
        "ENV",
        "EPOCHREALTIME",
        "EPOCHSECONDS",
        "EUID",
        "EXECIGNORE",
        "FIGNORE",
        "FUNCNAME",
        "FUNCNEST",
        "GLOBIGNORE",
        "GROUPS",
        "HISTCMD",
        "HOME",
        "HOSTNAME",
        "IFS",
        "LINENO",
        "LINES",
        "MAPFILE",
        "OLDPWD",
        "OPTARG",
        "OPTERR",
        "OPTIND",
        "PATH",
        "PIPESTATUS",
        "POSIXLY_CORRECT",
        "PPID",
        "PROMPT_COMMAND",
        "PS0",
        "PS1",
        "PS2",
        "PS3",
        "PS4",
        "PWD",
        "RANDOM",
        "READLINE_LINE",
        "REPLY",
        "SECONDS",
        "SHELL",
        "SHELLOPTS",
        "SHLVL",
        "SRANDOM",
        "TIMEFORMAT",
        "TMOUT",
        "UID",
        "USER",
        "_",
    }
)
"""Variables that have a meaning for bash, or that it sets by itself."""

SCRIPT_NAMES = frozenset(
    {"AS_RANK", "HOSTS", "IMAGE", "PORT", "PROCESSES", "PROGRAM", "SRUN_ARGS", "TORCHRUN_ARGS", "VENV"}
)
"""Variables of the rendered script."""

LAUNCHER_NAMES = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
        "GROUP_RANK",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "NODE_RANK",
        "RANK",
        "ROCR_VISIBLE_DEVICES",
        "WORLD_SIZE",
        "ZE_AFFINITY_MASK",
    }
)
"""Variables that Slurm or the launcher set in each process, whatever the job says."""


ALLOWED = frozenset({"SLURM_COORDINATOR_ADDRESS"})
"""Variables that look like Slurm's, and that a job may set."""

TAKEN: tuple[tuple[frozenset[str], str | None, str], ...] = (
    (BASH_NAMES, "BASH", "the shell sets it"),
    (SCRIPT_NAMES, None, "the script uses that name itself"),
    (LAUNCHER_NAMES, None, "it is set for each process: see coordinator_port for MASTER_PORT"),
    (frozenset({"JAX_NUM_CPU_DEVICES"}), None, "see devices_per_process"),
    (frozenset(), "SLURM_", "Slurm sets it"),
)
"""Names, what other names begin with, and why a job must not set them; the first that fits is told."""


def taken(name: str) -> str | None:
    """Say who sets a variable that a job must not set; return None for any other.

    >>> taken("PATH"), taken("OMP_NUM_THREADS")
    ('the shell sets it', None)
    """
    if name in ALLOWED:
        return None
    for names, beginning, reason in TAKEN:
        if name in names or (beginning and name.startswith(beginning)):
            return reason
    return None
