"""A reader who unpacks the zip of a guide on a cluster and types the commands of its README, one after the other."""

from __future__ import annotations

import re
import stat
import subprocess
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from support.programs import expect_abort_at_exit

from srunbook import cluster
from srunbook.cluster import State

NUMBER = r"(?<![\d.])17(?!\d)"
"""The number of a job in the commands of the pages."""


def unpack(path: Path, folder: Path) -> Path:
    """Unpack a zip with the modes of its files, as `unzip` does; return the folder in it."""
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            written = Path(archive.extract(entry, folder))
            written.chmod(stat.S_IMODE(entry.external_attr >> 16))
    return folder / path.stem


def commands_of(readme: str) -> list[tuple[str, str]]:
    """Return the commands of a README, each with what the README says below it."""
    return re.findall(r"^```bash\n(.*?)\n```\n(?:\n(?!#|```)([^\n]+)\n)?", readme, re.MULTILINE | re.DOTALL)


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

    def type(self, command: str, note: str) -> None:
        """Type a command, wait for the end of the jobs that it submits, and note what differs from the README."""
        text = self.with_number(command)
        if text.startswith("tail -f"):
            text = f"timeout 5 {text} || [[ $? == 124 ]]"
        if text.endswith("&"):
            text = f"{text.removesuffix('&')} >/dev/null 2>&1 &"
        done = self.run(text)
        status = re.search(r"exit status (\d+)", note)
        if done.returncode != (expected := int(status[1]) if status else 0):
            self.problems.append(f"{text}: status {done.returncode}, not {expected}\n{done.stdout}{done.stderr}")
        for job in re.findall(r"^(?:Submitted batch job|job:) +(\d+)$", done.stdout, re.MULTILINE):
            self.jobs.append(job)
            ended = cluster.await_job(self.state, job, user=self.user)
            expect_abort_at_exit(ended.state == "FAILED", ended.output)
            if ended.state != "COMPLETED":
                self.problems.append(f"job {job} ended as {ended.state}, not COMPLETED:\n{ended.output}")

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
