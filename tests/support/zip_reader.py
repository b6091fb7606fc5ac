"""A reader who unpacks the zip of a guide on a cluster and types the commands of its README, one after the other."""

from __future__ import annotations

import re
import stat
import subprocess
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from srunbook import cluster
from srunbook.cluster import State

ENDLESS = 5
"""Seconds after which somebody who watches a log has seen enough."""

TRAINING = """
log=$(scontrol show job {job} | sed -n 's/^ *StdOut=//p')
for _ in {{1..600}}; do
  grep -Eqs 'epoch|step' "$log" && break
  [[ $(squeue --noheader --jobs={job} 2>/dev/null) ]] || break
  sleep 0.5
done
"""
"""Waits until a job trains, or is over: a signal before that would end it."""

NUMBER = r"(?<![\d.])17(?!\d)"
"""The number of a job in the commands of the pages."""

QUICK = ("squeue", "tail", "scancel", "sstat")
"""Programs that look at a job or stop it: these do not wait for its end."""


@dataclass(frozen=True)
class Line:
    """A command of a README.

    Args:
        text: The command.
        note: What the README says below it.
    """

    text: str
    note: str

    @property
    def status(self) -> int:
        """The exit status that the README tells."""
        found = re.search(r"exit status (\d+)", self.note)
        return int(found[1]) if found else 0


def unpack(path: Path, folder: Path) -> Path:
    """Unpack a zip with the modes of its files, as `unzip` does; return the folder in it."""
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            written = Path(archive.extract(entry, folder))
            written.chmod(stat.S_IMODE(entry.external_attr >> 16))
    return folder / path.stem


def lines(readme: str) -> list[Line]:
    """Read the commands of a README."""
    found = re.findall(r"^```bash\n(.*?)\n```\n(?:\n(?!#|```)([^\n]+)\n)?", readme, re.MULTILINE | re.DOTALL)
    return [Line(command, note) for command, note in found]


@dataclass
class ZipReader:
    """Type commands on the login machine, in the unpacked folder, with the guide's environment activated.

    Args:
        state: The cluster.
        folder: The folder, from the user's home.
        environment: The environment that the job scripts name, such as `torch-env`.
        user: Who types.
    """

    state: State
    folder: str
    environment: str
    user: str
    jobs: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    stopped: set[str] = field(default_factory=set)
    awaited: set[str] = field(default_factory=set)

    def type(self, line: Line) -> None:
        """Type a command, and wait for the jobs before it where it starts something; note what goes wrong."""
        program = line.text.split()[0]
        if program not in QUICK:
            self.settle()
        text = self.with_number(line.text)
        if program in QUICK and self.jobs:
            self.run(TRAINING.format(job=self.jobs[-1]))
        if program == "tail":
            text = f"timeout {ENDLESS} {text} || [[ $? == 124 ]]"
        if program == "scancel" and "--signal=USR1" not in text:
            self.stopped |= {*self.jobs[-1:]}
        if text.endswith("&"):
            text = f"{text.removesuffix('&')} >/dev/null 2>&1 &"
        done = self.run(text)
        self.jobs += re.findall(r"^(?:Submitted batch job|job:) +(\d+)$", done.stdout, re.MULTILINE)
        if done.returncode != line.status:
            said = f"{done.stdout}{done.stderr}"
            self.problems.append(f"{text}: status {done.returncode}, not {line.status}\n{said}")

    def with_number(self, text: str) -> str:
        """Put the number of a job into a command that means it: of the last one, or the last that left such a file."""
        if not self.jobs or not re.search(NUMBER, text):
            return text
        for word in text.split():
            if "/" in word and re.search(NUMBER, word):
                paths = [re.sub(NUMBER, job, word) for job in reversed(self.jobs)]
                found = self.run(f"ls -d {' '.join(paths)} 2>/dev/null || true").stdout.split()
                text = text.replace(word, next((path for path in paths if path in found), paths[0]))
        return re.sub(NUMBER, self.jobs[-1], text)

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        """Run a text in a login shell of the user."""
        script = f'source "$HOME/{self.environment}/bin/activate" && cd "$HOME/{self.folder}" && {{ {text}\n}}'
        return cluster.capture(self.state, ["bash", "-lc", script], user=self.user)

    def settle(self) -> None:
        """Wait for the end of all jobs; note those that did not complete, with what they said."""
        for job in [job for job in self.jobs if job not in self.awaited]:
            self.awaited.add(job)
            done = cluster.await_job(self.state, job, user=self.user)
            wanted = ("COMPLETED", "CANCELLED") if job in self.stopped else ("COMPLETED",)
            if done.state not in wanted:
                self.problems.append(f"job {job} ended as {done.state}, not {wanted[0]}:\n{done.output}")
