"""The daemons of the cluster: munge everywhere, the database and the controller on `ctl`, slurmd on the nodes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence

from srunbook.cluster._commands import capture, entering
from srunbook.cluster._errors import ClusterError
from srunbook.cluster._processes import children, program_of
from srunbook.cluster._scripts import shell_script
from srunbook.cluster._state import State
from srunbook.slurm import compress_hostlist

CONTROLLER = ("mariadbd", "slurmdbd", "slurmctld")
"""What runs on `ctl` besides munge, in the order of the start."""


def start_daemons(state: State, machines: Sequence[str]) -> None:
    """Start the daemons of some machines, those of the nodes last; what runs already goes on running."""
    _all_at_once(state, {machine: ["sh", "-ec", shell_script("munge")] for machine in machines})
    if "ctl" in machines:
        _all_at_once(state, {"ctl": ["sh", "-ec", shell_script("database")]})
    start = "pgrep -x 'slurmd(-wlm)?' >/dev/null || slurmd"
    _all_at_once(state, {machine: ["sh", "-ec", start] for machine in machines if machine.startswith("node")})


def dead_daemons(state: State) -> dict[str, list[str]]:
    """Return the daemons that should run and don't, by machine; a machine without power is left out."""
    dead: dict[str, list[str]] = {}
    for machine in filter(state.has, state.machines):
        others = CONTROLLER if machine == "ctl" else ("slurmd",) if machine.startswith("node") else ()
        # Debian's daemons end in -wlm once `scontrol reconfigure` has started them again.
        running = {program_of(child).removesuffix("-wlm") for child in children(state.first_process(machine))}
        if missing := [name for name in ("munged", *others) if name not in running]:
            dead[machine] = missing
    return dead


def _all_at_once(state: State, commands: dict[str, list[str]]) -> None:
    processes = {}
    for machine, command in commands.items():
        with (state.folder / "log" / machine).open("ab") as stream:
            processes[machine] = subprocess.Popen(
                entering(state, machine, command),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
    if failed := [machine for machine, process in processes.items() if process.wait() != 0]:
        log = state.folder / "log" / failed[0]  # where a daemon complains that gives up before it has a log of its own
        words = last_words(state) or "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-8:])
        refused = "Slurm refuses the configuration" if "fatal: " in words else f"daemons of {failed[0]} did not start"
        raise ClusterError(f"{refused}:\n{words}")


def node_states(state: State) -> dict[str, str]:
    """Return the state of each node by its name, in the short words of `sinfo`, such as `idle`, `mix` and `down*`."""
    return {node: word for node, (word, _) in _described(state).items()}


def _described(state: State) -> dict[str, tuple[str, str]]:
    """Return the state of every node, and the reason that Slurm gives for it."""
    result = capture(state, ["sinfo", "--noheader", "--all", "--Node", "--format=%N %t %E"], user=None)
    lines = (line.split(None, 2) for line in result.stdout.splitlines())
    return {words[0]: (words[1], words[2] if len(words) == 3 else "") for words in lines if len(words) >= 2}


def await_idle(state: State, *, timeout: float = 300.0) -> None:
    """Wait until all nodes are idle."""
    deadline = time.monotonic() + timeout
    while True:
        nodes = _described(state)
        if [word for word, _ in nodes.values()] == ["idle"] * len(state.specification.node_names):
            return
        if nodes and (alone := [name for name in state.specification.node_names if name not in nodes]):
            raise ClusterError(f"no partition contains {compress_hostlist(alone)}, so no job could run there")
        if complaint := last_words(state):
            raise ClusterError(f"Slurm refuses the configuration:\n{complaint}")
        refused = any(word.startswith(("inval", "drain")) for word, _ in nodes.values())
        if refused or time.monotonic() > deadline:
            seen = [f"{name} {word}: {reason}" for name, (word, reason) in nodes.items()]
            raise ClusterError("\n".join(["not all nodes are idle:", *(seen or ["the controller does not answer"])]))
        time.sleep(0.1)


def last_words(state: State) -> str:
    """Return the last lines of the daemons that gave up, or nothing."""
    for log in sorted((state.folder / "log" / "slurm").glob("slurm*.log")):
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        if any("fatal: " in line for line in lines[-20:]):
            complaints = [line.partition("] ")[2] or line for line in lines if "error: " in line or "fatal: " in line]
            return "\n".join(f"{log.stem}: {line}" for line in complaints[-8:])
    return ""
