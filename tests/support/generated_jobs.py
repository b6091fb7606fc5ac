"""Draw configurations of jobs from all that a job may have, for the tests of the generator and of Slurm."""

from __future__ import annotations

import contextlib
import random
import string
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from srunbook import generate, sites
from srunbook.generate import JobError, JobSpecification, Layer
from srunbook.generate.specification import choices

HOSTILE = [
    *("a b", "it's", '"', "'", "''", "\\", "a\\", "\\'", "$HOME", "${X:-y}", "$(touch owned)", "`touch owned`", "$"),
    *("; touch owned", "&& x", "| x", "> owned", "< x", "(", ")", "{a,b}", "*", "?", "[x]", "!x", "#", "# x", " #x"),
    *("~", "~/x", "a=b", "a,b", "--x=a,b", "-", "--", "=", "%j", "{{ name }}", "{% if x %}", "{#", "#SBATCH --nodes=9"),
    *("é", "日本", "\N{RIGHT SINGLE QUOTATION MARK}", "“x”", "\u00a0", "\u200b", "👩\u200d💻", " ", "", "\N{EN DASH}x"),
    *("then", "done", "do", "fi", "in", "if", "time", "case", "ls", "echo"),
    *("0", "-n", "--%j", "a=", "@", "%", "+", ","),
]

PLACES = ["~", "~/env", "$HOME/my env", "$JAX_IMAGE", "/opt/it's", "~/a$b", "env", "./é", "~/'`x`"]
ALNUM = string.ascii_letters + string.digits


@dataclass(frozen=True)
class Capacity:
    """What a job may ask for; `memory` of a node is in KiB.

    Args:
        words: Partitions, accounts, constraints and types of GPUs that there are, where not any word will do.
        wrong: Share of configurations that get a value of anything at all.
    """

    nodes: int = 10_000
    cpus: int = 1024
    gpus: int = 99
    memory: int = 1 << 60
    words: dict[str, tuple[str, ...]] = field(default_factory=dict)
    wrong: float = 0.15


class Chance(random.Random):
    """A source of configurations, the same ones for the same seed."""

    def up_to(self, most: int) -> int:
        """Draw a number from 1: mostly a small one, as people write them, and sometimes the largest."""
        small = self.randint(1, min(most, 32))
        return self.choice([small, small, self.randint(1, most), most])

    def word(self, longest: int = 64, first: str = ALNUM, others: str = f"{ALNUM}._-") -> str:
        """Draw a name: mostly a short one, and sometimes the longest."""
        length = self.choice([0, self.randint(0, 9), self.randint(0, 9), longest - 1])
        return self.choice(first) + "".join(self.choices(others, k=length))

    def text(self) -> str:
        """Draw a text, mostly a hostile one."""
        strange = "".join(chr(self.choice([0xA0, 0x2030, 0x10000]) + self.randrange(0x1F00)) for _ in range(8))
        return self.choice([self.choice(HOSTILE), "".join(self.choices(HOSTILE, k=3)), strange])

    def memory(self, most: int) -> str:
        """Draw an amount of memory, at most so many KiB."""
        amounts = {unit: min(most // 1024**power, 999_999_999) for power, unit in enumerate("KMGT")}
        unit, number = self.choice([(unit, number) for unit, number in amounts.items() if number])
        return f"{self.up_to(number)}{unit}"

    def configuration(self, there: Capacity) -> dict[str, Any]:
        """Draw a configuration as somebody might write it: mostly allowed, with hostile texts, and sometimes wrong."""
        framework = self.choice([*choices("framework"), "jax"])
        gpus = self.choice([0, 0, self.up_to(there.gpus)]) if framework != "gloo" else 0
        shares = [n for n in range(1, gpus + 1) if gpus % n == 0]
        processes = self.choice(shares or [1, 1, 2, 4, self.randint(1, min(512, there.cpus))])
        cpus = max(processes, self.up_to(there.cpus))
        any_words = dict.fromkeys(["partition", "account", "constraint"], tuple(self.word(60) for _ in range(4)))
        words = {"gpu": ("a100", "H-1.0_x"), **any_words, **there.words}
        known = there.words.items()
        fits = [
            site for site in sites.names() if all(sites.read(site).get(kind) in (None, *some) for kind, some in known)
        ]
        few = range(self.randint(1, 3))
        programs = ["train.py", "a b/c'd.py", "./-x.py", "$HOME.py", "`x`", f"{self.text()}.py", f"x{self.text()}.py"]
        made = {"script": self.choice(programs), "framework": framework, "nodes": self.up_to(there.nodes)}
        made |= {"cpus_per_node": cpus, "platform": "cpu", "gpus_per_node": None}
        if processes != (gpus or 1):
            made["processes_per_node"] = processes
        if gpus:
            made |= {"platform": "gpu", "gpus_per_node": self.choice([gpus, f"{self.choice(words['gpu'])}:{gpus}"])}
            made["gpu_option"] = self.choice([*choices("gpu_option"), None])
        elif framework == "jax":
            made["devices_per_process"] = self.choice([None, self.up_to(cpus // processes)])
        others = {
            "profile": self.choice([*generate.PROFILES]),
            "cluster": self.choice(fits),
            "name": self.word(),
            "time_limit": self.choice(["30", "30:00", "0-02", "0-02:40", "2:00:00", "1-12:00:00", "999-23:59:59"]),
            "exclusive": self.choice([True, False]),
            "partition": ",".join(self.sample(words["partition"], self.randint(1, len(words["partition"])))),
            "account": self.choice(words["account"]),
            "qos": self.word(),
            "constraint": self.choice("&|").join(self.sample(words["constraint"], 2)),
            # With a digit, as interfaces have: shellcheck takes `export NAME=fi` for a word of bash, bash does not.
            "network_interface": f"{self.word(14, string.ascii_letters)}0",
            "sbatch": {"comment": self.text(), "nice": self.up_to(100), "contiguous": self.choice([True, False])},
            "setup": ["module use /it\\'s", "export SETUP='a  $b'"][: len(few)],
            "modules_to_load": [self.word(128, others=f"{ALNUM}._+/@-") for _ in few],
            # `_` alone belongs to bash
            "env_vars": {self.word(128, string.ascii_letters, f"{ALNUM}_"): self.text() for _ in few},
            "coordinator_port": self.choice([1024, 65535, self.randint(1024, 65535)]),
            "output": self.choice(
                ["%j", "%x_%j.out", "logs/%x_%j.out", "a.b/_%j-%x-.", f"{'x' * 60}/{'y' * 30}%j.log"]
            ),
            "requeue": self.choice([True, False]),
            "signal": f"{self.choice(['HUP', 'INT', 'QUIT', 'USR1', 'USR2', 'TERM', 'CONT'])}@{self.up_to(65535)}",
            "arguments": [self.text() for _ in few],
        }
        made |= {name: value for name, value in others.items() if self.random() < 0.5}
        # Slurm rounds up to MiB; with --exclusive it counts all CPUs of a node
        amounts = {"memory_per_cpu": there.memory // there.cpus - 1024, "memory_per_node": there.memory}
        if kind := self.choice(["", *amounts]):
            made[kind] = self.memory(amounts[kind])
        place = self.choice([self.choice(PLACES), f"/x/{self.text()}"])
        if kind := self.choice(["", "virtual_environment", "container_image", "conda_environment", "pixi_manifest"]):
            made[kind] = f"{place}/envs/{self.word(30)}" if kind == "conda_environment" else place
        if kind == "container_image":
            made["container_engine"] = self.choice(["apptainer", "pyxis"])
            made["container_mounts"] = [self.choice(["/data", "$HOME/x:/y"]) for _ in few]
        if framework == "torchrun" and self.random() < 0.4:
            made |= {"older_torchrun": True, "signal": "TERM@120"}
        if self.random() < there.wrong:
            name = self.choice(list(JobSpecification.model_fields))
            wrong = self.choice([self.text(), self.randint(-(10**6), 10**6), 0.5, None, True])
            form = type(made.get(name))
            made[name] = [wrong] if form is list else {"A": wrong} if form is dict else wrong
        return made


def generated(folder: Path, count: int, there: Capacity) -> list[tuple[JobSpecification, Path]]:
    """Try as many configurations; return those that are accepted, each with its script in the folder."""
    folder.mkdir()
    accepted, chance = [], Chance(20261120)
    for number in range(count):
        values = chance.configuration(there)
        with contextlib.suppress(JobError):
            job = generate.specify(Layer("here", values)).specification
            path = folder / f"{number:05}.sbatch"
            path.write_bytes(generate.render(job, made_by=f"srunbook generate --script {job.script!r}").encode())
            accepted.append((job, path))
    return accepted
