"""Draw configurations of jobs from all that a job may have, for the tests of the generator and of Slurm."""

from __future__ import annotations

import random
import re
import string
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from srunbook import generate, sites
from srunbook.generate import JobError, JobSpecification, Layer
from srunbook.generate.specification import CONTROL, choices

SEED = 20261120

HOSTILE = [
    *("a b", "it's", '"', "'", "''", "\\", "a\\", "\\'", "$HOME", "${X:-y}", "$(touch owned)", "`touch owned`", "$"),
    *("; touch owned", "&& x", "| x", "> owned", "< x", "(", ")", "{a,b}", "*", "?", "[x]", "!x", "#", "# x", " #x"),
    *("~", "~/x", "a=b", "a,b", "--x=a,b", "-", "--", "=", "%j", "{{ name }}", "{% if x %}", "{#", "#SBATCH --nodes=9"),
    *("é", "日本", "\N{RIGHT SINGLE QUOTATION MARK}", "“x”", "\u00a0", "\u200b", "👩\u200d💻", " ", "", "\N{EN DASH}x"),
    *("then", "done", "do", "fi", "in", "if", "time", "case", "ls", "echo"),
    *("0", "-n", "--%j", "a=", "@", "%", "+", ","),
]
FATAL = ["a\nb", "a\n#SBATCH --nodes=9", "a\r\nb", "\r", "\t", "\x00", "\x1b[2J", "\x7f", "\x85", "\u2028"]

SIGNALS = ("HUP", "INT", "QUIT", "USR1", "USR2", "TERM", "CONT")
ALNUM = string.ascii_letters + string.digits


@dataclass(frozen=True)
class Capacity:
    """What a job may ask for.

    Args:
        nodes: Nodes.
        cpus: CPUs of a node.
        gpus: GPUs of a node.
        memory: Memory of a node in KiB, or none where no job is refused for it.
        words: Partitions, accounts, constraints and types of GPUs that there are, where not any word will do.
        wrong: Share of configurations that get a value of anything at all.
    """

    nodes: int = 10_000
    cpus: int = 1024
    gpus: int = 99
    memory: int | None = None
    words: dict[str, tuple[str, ...]] = field(default_factory=dict)
    wrong: float = 0.15


class Chance:
    """A source of configurations, the same ones for the same seed.

    Args:
        capacity: What they may ask for.
        seed: Where the numbers begin.
    """

    def __init__(self, capacity: Capacity, seed: int) -> None:
        self.capacity = capacity
        self.random = random.Random(seed)
        self.choice = self.random.choice

    def often(self, share: float = 0.5) -> bool:
        """Return True as often as the share says."""
        return self.random.random() < share

    def up_to(self, most: int) -> int:
        """Draw a number from 1: mostly a small one, as people write them, and sometimes the largest."""
        small = self.random.randint(1, min(most, 32))
        return self.choice([small, small, self.random.randint(1, most), most])

    def word(self, longest: int = 64, first: str = ALNUM, others: str = f"{ALNUM}._-") -> str:
        """Draw a name: mostly a short one, and sometimes the longest."""
        length = self.choice([0, self.random.randint(0, 9), self.random.randint(0, 9), longest - 1])
        return self.choice(first) + "".join(self.random.choices(others, k=length))

    def words(self, kind: str, marks: str) -> str:
        """Draw some of the known words of a kind, or any words."""
        known = self.capacity.words.get(kind) or tuple(self.word(60) for _ in range(4))
        text, *others = self.random.sample(known, self.random.randint(1, min(4, len(known))))
        return text + "".join(self.choice(marks) + other for other in others)

    def text(self) -> str:
        """Draw a text, mostly a hostile one."""
        codes = [self.choice([32, 160, 0x2000, 0x10000]) + self.random.randrange(0x2000) for _ in range(8)]
        strange = re.sub(f"[{CONTROL}]", "", "".join(map(chr, codes)))
        return self.choice([self.choice(HOSTILE), "".join(self.random.choices(HOSTILE, k=3)), strange])

    def environment(self) -> dict[str, str]:
        """Draw where Python comes from: a path that may begin with ~ or a variable."""
        kind = self.choice(["virtual_environment", "container_image", "conda_environment", "pixi_manifest"])
        known = ["~", "~/env", "$HOME/my env", "$JAX_IMAGE", "/opt/it's", "~/a$b", "env", "./é", "~/'`x`"]
        place = self.choice([self.choice(known), f"/x/{self.text()}"])
        return {kind: f"{place}/envs/{self.word(30)}" if kind == "conda_environment" else place}

    def memory(self, most: int | None) -> str:
        """Draw an amount of memory, at most so many KiB."""
        power = self.random.randint(0, 3)
        number = min(most // 1024**power, 999_999_999) if most else 999_999_999
        return f"{self.up_to(number)}{'KMGT'[power]}" if number else f"{self.up_to(most or 1)}K"

    def size(self, framework: str) -> dict[str, Any]:
        """Draw the fields of a size, which have to fit each other; a profile and a cluster may set some of them."""
        made: dict[str, Any] = {}
        preset: dict[str, Any] = {}
        most, words = self.capacity, self.capacity.words
        if self.often(0.5):
            made["profile"] = self.choice(list(generate.PROFILES))
            preset |= generate.PROFILES[made["profile"]]
        if self.often(0.4):  # a site whose partition and account are there, where not any word will do
            kinds = ("partition", "account")
            known = {name: [sites.read(name).get(kind) for kind in kinds] for name in sites.names()}
            fits = [
                name
                for name, values in known.items()
                if all(one in (None, *words.get(kind, [one])) for kind, one in zip(kinds, values, strict=True))
            ]
            made["cluster"] = self.choice(fits)
            preset |= sites.read(made["cluster"])
        if "nodes" not in preset or self.often():
            made["nodes"] = self.up_to(most.nodes)
        gpus = self.up_to(most.gpus) if framework != "gloo" and self.often(0.3) else 0
        if gpus:
            kind = self.choice(words.get("gpu") or ("a100", "H-1.0_x"))
            made |= {"platform": "gpu", "gpus_per_node": self.choice([gpus, f"{kind}:{gpus}"])}
        elif "gpus_per_node" in preset:
            made |= {"platform": "cpu", "gpus_per_node": None}
        shared = [n for n in range(1, gpus + 1) if gpus % n == 0]
        processes = self.choice(shared or [1, 1, 2, 4, self.random.randint(1, min(512, most.cpus))])
        cpus = preset.get("cpus_per_node", 0)
        if cpus < processes or self.often():
            cpus = made["cpus_per_node"] = max(processes, self.up_to(most.cpus))
        if processes != (gpus or 1) or self.often(0.2):
            made["processes_per_node"] = processes
        if framework == "jax" and not gpus and self.often(0.7):
            made["devices_per_process"] = self.up_to(cpus // processes)
        if self.often(0.6):  # Slurm rounds up to MiB; with --exclusive it counts all CPUs of a node
            each = self.often()
            limit = most.memory and (most.memory // most.cpus - 1024 if each else most.memory)
            made["memory_per_cpu" if each else "memory_per_node"] = self.memory(limit)
        return made

    def configuration(self) -> dict[str, Any]:
        """Draw a configuration as somebody might write it: mostly allowed, with hostile texts, and sometimes wrong."""
        framework = self.choice([*choices("framework"), "jax"])
        programs = ["train.py", "a b/c'd.py", "./-x.py", "$HOME.py", "`x`", f"{self.text()}.py", f"x{self.text()}.py"]
        wrong_programs = ["-x.py", " ", "~/a.py", "a.py "]
        made = {"script": self.choice(wrong_programs if self.often(0.03) else programs), "framework": framework}
        made |= self.size(framework)
        few = range(self.random.randint(1, 3))
        others = {
            "name": self.word(),
            "time_limit": self.choice(["30", "30:00", "0-02", "0-02:40", "2:00:00", "1-12:00:00", "999-23:59:59"]),
            "exclusive": self.often(),
            "partition": self.words("partition", ","),
            "account": self.choice(self.capacity.words.get("account") or (self.word(),)),
            "qos": self.word(),
            "constraint": self.words("constraint", "&|"),
            # With a digit, as interfaces have: shellcheck takes `export NAME=fi` for a word of bash, bash does not.
            "network_interface": f"{self.word(14, string.ascii_letters)}0",
            "sbatch": {"comment": self.text(), "nice": self.up_to(100), "contiguous": self.often()},
            "setup": ["module use /it\\'s", "export SETUP='a  $b'"][: len(few)],
            "modules_to_load": [self.word(128, others=f"{ALNUM}._+/@-") for _ in few],
            # `_` alone belongs to bash
            "env_vars": {self.word(128, string.ascii_letters, f"{ALNUM}_"): self.text() for _ in few},
            "coordinator_port": self.choice([1024, 65535, self.random.randint(1024, 65535)]),
            "output": self.choice(
                ["%j", "%x_%j.out", "logs/%x_%j.out", "a.b/_%j-%x-.", f"{'x' * 60}/{'y' * 30}%j.log"]
            ),
            "requeue": self.often(),
            "signal": f"{self.choice(SIGNALS)}@{self.up_to(self.choice([300, 65535]))}",
            "arguments": [self.text() for _ in few],
            **self.environment(),
        }
        made |= {name: value for name, value in others.items() if self.often()}
        if made.get("platform") == "gpu" and self.often(0.4):
            made["gpu_option"] = self.choice(choices("gpu_option"))
        if framework == "torchrun" and self.often(0.3):
            made |= {"older_torchrun": True, "signal": "TERM@120"}
        if self.often(self.capacity.wrong):
            name = self.choice(list(JobSpecification.model_fields))
            wrong = self.choice([*FATAL, self.text(), self.random.randint(-(10**6), 10**6), 0.5, None, True])
            kind = type(made.get(name))
            made[name] = [wrong] if kind is list else {"A": wrong} if kind is dict else wrong
        return made


@dataclass
class Trial:
    """What came of many configurations.

    Args:
        folder: Where the accepted scripts are.
        accepted: Specifications with their scripts.
        refused: What was said of each that was refused.
    """

    folder: Path
    accepted: list[tuple[JobSpecification, Path]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def generated(folder: Path, count: int, capacity: Capacity, seed: int = SEED) -> Trial:
    """Try as many configurations, and write the script of each that is accepted."""
    folder.mkdir()
    trial, chance = Trial(folder), Chance(capacity, seed)
    for number in range(count):
        values = chance.configuration()
        try:
            job = generate.specify(Layer("here", values))
            text = generate.render(job.specification, made_by=f"srunbook generate --script {values['script']!r}")
        except JobError as error:
            trial.refused.append(str(error))
            continue
        path = folder / f"{number:05}.sbatch"
        path.write_bytes(text.encode())
        trial.accepted.append((job.specification, path))
    return trial
