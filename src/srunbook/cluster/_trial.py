"""Have Slurm judge new files before the daemons of a cluster that is up see them.

`scontrol reconfigure` of 22.05 ends the controller where it refuses a line, and a controller that starts again may
requeue a job or drain its node. So a second controller, which knows no job and reaches no network, reads them first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from srunbook.cluster._commands import capture
from srunbook.cluster._errors import ClusterError
from srunbook.cluster._specification import Specification
from srunbook.cluster._state import State
from srunbook.cluster._writing import write_texts

FOLDER = "next"
"""Folder below /etc/slurm in which every machine sees the files that are judged."""

CONTROLLER_CONF = "controller.conf"
"""The slurm.conf of the second controller."""

ELSEWHERE = {
    "StateSaveLocation": "/run/trial",
    "SlurmctldPidFile": "/run/trial/pid",
    "SlurmctldLogFile": "/run/trial/log",
    "AccountingStorageType": "accounting_storage/none",  # it would tell slurmdbd that it is the controller now
}
"""What the second controller has for itself."""

LEFT_OUT = ("AccountingStorageEnforce", "AccountingStorageHost", "AccountingStorageTRES", "SlurmctldPrimaryOnProg")
"""What goes with a database alone, whose form sinfo judges, and a program that would be run."""

CONTROLLER = f"""\
rm -rf /run/trial
install -d -o slurm -m 0700 /run/trial
trap 'rm -rf /run/trial' EXIT
unshare --net --pid --fork --kill-child bash -c '
ip link set lo up
ip address add "$1" dev lo
export SLURM_CONF=/etc/slurm/{FOLDER}/{CONTROLLER_CONF}
slurmctld -D &
timeout 30 sinfo >/dev/null 2>&1 &
wait -n
' bash "$1" >/run/trial/said 2>&1 || {{ cat /run/trial/said; exit 1; }}
"""
"""Starts the second controller, and ends it when it answers; its argument is the address of the controller."""

NODE = f"SLURM_CONF=/etc/slurm/{FOLDER}/slurm.conf timeout 10 slurmd -G"
"""Has slurmd read gres.conf and cgroup.conf; for a device that is not there it would wait."""

EXPECTED = (
    *("MailProg", "mpi/", "MPI: ", "accounting information", "state file", "state save file", "more than once"),
    "memory cgroup",
)
"""Parts of complaints that the second controller, or slurmd -G, makes in any case, and survives."""


def judge(state: State, specification: Specification, texts: Mapping[str, str]) -> None:
    """Have Slurm read files that are to replace those of a cluster.

    Args:
        state: The cluster.
        specification: What the files were made of.
        texts: Their texts, by the name below /etc/slurm.

    Raises:
        ClusterError: Slurm refuses them; the message has its words, and nothing has changed.
    """
    folder = state.folder / "etc" / "slurm" / FOLDER
    every = {**texts, CONTROLLER_CONF: of_trial(specification, texts["slurm.conf"])}
    try:
        write_texts({folder / name: text for name, text in every.items()})
        _ask(state, "login", ["env", f"SLURM_CONF=/etc/slurm/{FOLDER}/slurm.conf", "sinfo", "--noheader"])
        _ask(state, "ctl", ["sh", "-c", CONTROLLER, "sh", specification.address("ctl")])
        for node in _readers(state, texts):
            _ask(state, node, ["sh", "-c", NODE])
    finally:
        for name in every:
            (folder / name).unlink(missing_ok=True)
        if folder.exists():
            folder.rmdir()


def of_trial(specification: Specification, text: str) -> str:
    r"""Return the slurm.conf of the second controller.

    It has no database, so it knows neither QOS, whose names the specification has checked, nor the weights of generic
    resources: those of the nodes stand as weights of a node.

    >>> groups = {"a": {"count": 1, "gres": ["gpu:a100:4"]}}
    >>> text = "StateSaveLocation=/var\nPartitionName=x QOS=y TRESBillingWeights=GRES/gpu=2,GRES/h=1\n"
    >>> of_trial(Specification(nodes=groups), text).splitlines()[:2]
    ['PartitionName=x TRESBillingWeights=node=2,GRES/h=1', 'StateSaveLocation=/run/trial']
    """
    taken = "|".join([*ELSEWHERE, *LEFT_OUT])
    text = re.sub(rf"^\s*(?:{taken})\s*=.*\n", "", text, flags=re.MULTILINE | re.IGNORECASE)
    text = re.sub(r"^(PartitionName=.*) QOS=\S+", r"\1", text, flags=re.MULTILINE | re.IGNORECASE)
    for group in specification.groups.values():
        for name, kind, _ in group.resources:
            text = re.sub(rf"gres/{name}(?::{re.escape(kind)})?=", "node=", text, flags=re.IGNORECASE)
    return text + "".join(f"{word}={value}\n" for word, value in ELSEWHERE.items())


def _readers(state: State, texts: Mapping[str, str]) -> list[str]:
    """Return the nodes that have to read files: none where those that a node alone reads stay as they are."""
    folder = state.folder / "etc" / "slurm"
    alone = ("gres.conf", "cgroup.conf")
    if all((folder / name).read_text(encoding="utf-8") == texts[name] for name in alone):
        return []
    return [node for node in state.specification.node_names if state.has(node)]


def _ask(state: State, machine: str, command: list[str]) -> None:
    done = capture(state, command, user=None, machine=machine)
    if done.returncode != 0:
        told = complaints(done.stdout + done.stderr)
        raise ClusterError(f"Slurm refuses the configuration, and nothing has changed:\n{told}")


def complaints(said: str) -> str:
    r"""Return the complaints among what a daemon said, without those that it makes in any case.

    >>> complaints("slurmctld: error: Configured MailProg is invalid\n[2026-11-23T06:54:50.294] fatal: no\nyes")
    'fatal: no'
    """
    lines = [re.sub(r"^\[[0-9T:.-]+\] ", "", line.strip()) for line in said.splitlines()]
    lines = [line for line in lines if not any(part in line for part in EXPECTED)]
    return "\n".join([line for line in lines if "error: " in line or "fatal: " in line][-8:] or lines[-8:])
