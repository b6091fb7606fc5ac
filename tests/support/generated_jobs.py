"""Draw configurations of jobs from all that a job may have, for the tests of the generator and of Slurm."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from srunbook import generate, sites
from srunbook.generate import JobError, JobSpecification, Layer
from srunbook.generate._specification import CONTROL, choices

SEED = 20261120

HOSTILE = [
    *("a b", "it's", '"', "'", "''", "\\", "a\\", "\\'", "$HOME", "${X:-y}", "$(touch owned)", "`touch owned`", "$"),
    *("; touch owned", "&& x", "| x", "> owned", "< x", "(", ")", "{a,b}", "*", "?", "[x]", "!x", "#", "# x", " #x"),
    *("~", "~/x", "a=b", "a,b", "--x=a,b", "-", "--", "=", "%j", "{{ name }}", "{% if x %}", "{#", "#SBATCH --nodes=9"),
    *("é", "日本", "\N{RIGHT SINGLE QUOTATION MARK}", "“x”", "\u00a0", "\u200b", "👩\u200d💻", " ", "", "\N{EN DASH}x"),
    *(
        "then",
        "done",
        "do",
        "fi",
        "in",
        "if",
        "time",
        "case",
        "ls",
        "echo",
        "0",
        "-n",
        "--%j",
        "a=",
        "@",
        "%",
        "+",
        ",",
    ),
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

    def often(self, share: float = 0.5) -> bool:
        """Return True as often as the share says."""
        return self.random.random() < share

    def up_to(self, most: int) -> int:
        """Draw a number from 1: mostly a small one, as people write them, and sometimes the largest."""
        small = self.random.randint(1, min(most, 32))
        return self.random.choice([small, small, self.random.randint(1, most), most])

    def letters(self, first: str, others: str, longest: int) -> str:
        """Draw a word: mostly a short one, and sometimes the longest."""
        length = self.random.choice([0, self.random.randint(0, 9), self.random.randint(0, 9), longest - 1])
        return self.random.choice(first) + "".join(self.random.choices(others, k=length))

    def word(self, longest: int = 64) -> str:
        """Draw a name."""
        return self.letters(ALNUM, ALNUM + "._-", longest)

    def words(self, kind: str, marks: str) -> str:
        """Draw some of the known words of a kind, or any words."""
        known = self.capacity.words.get(kind) or tuple(self.word(60) for _ in range(4))
        text, *others = self.random.sample(known, self.random.randint(1, min(4, len(known))))
        return text + "".join(self.random.choice(marks) + other for other in others)

    def text(self) -> str:
        """Draw a text, mostly a hostile one."""
        if self.often(0.4):
            return self.random.choice(HOSTILE)
        if self.often():
            return "".join(self.random.choices(HOSTILE, k=self.random.randint(2, 4)))
        codes = [self.random.choice([32, 160, 0x2000, 0x10000]) + self.random.randrange(0x2000) for _ in range(8)]
        return re.sub(f"[{CONTROL}]", "", "".join(map(chr, codes)))

    def program(self) -> str:
        """Draw a program."""
        if self.often(0.03):
            return self.random.choice(["-x.py", " ", "~/a.py", "a.py "])
        known = ["train.py", "a b/c'd.py", "./-x.py", "$HOME.py", "`x`", f"{self.text()}.py"]
        return self.random.choice([*known, f"x{self.text()}.py"])

    def place(self) -> str:
        """Draw a path that may begin with ~ or a variable."""
        known = ["~", "~/env", "$HOME/my env", "$JAX_IMAGE", "/opt/it's", "~/a$b", "env", "./é", "~/'`x`"]
        return self.random.choice([self.random.choice(known), f"/x/{self.text()}"])

    def environment(self) -> dict[str, str]:
        """Draw where Python comes from."""
        kind = self.random.choice(["virtual_environment", "container_image", "conda_environment"])
        place = self.place()
        conda = f"{place}/envs/{self.letters(ALNUM, ALNUM + '._-', 30)}"
        return {kind: conda if kind == "conda_environment" else place}

    def time(self) -> str:
        """Draw a time limit, in each of its forms."""
        if self.often(0.2):
            return self.random.choice(["30", "30:00", "0-02", "0-02:40"])
        day = self.random.choice(["", "", f"{self.random.randint(0, 999)}-"])
        hours = self.random.choice([self.random.randint(0, 12), 23 if day else self.random.randint(0, 999)])
        form = self.random.choice(["", "02"])
        return f"{day}{hours:{form}}:{self.random.randint(0, 59):02}:{self.random.randint(0, 59):02}"

    def output(self) -> str:
        """Draw the name of a log."""
        folder = self.random.choice(["", "", "logs/", self.letters(ALNUM + "_", ALNUM + "._-", 60) + "/"])
        before = self.random.choice(["", "%x", "%x_", "svgd_", self.letters(ALNUM + "_", ALNUM + "._-", 30)])
        return f"{folder}{before}%j{self.random.choice(['.out', '', '.log', '-%x', '-.'])}"

    def memory(self, most: int | None) -> str:
        """Draw an amount of memory, at most so many KiB."""
        power = self.random.randint(0, 3)
        number = min(most // 1024**power, 999_999_999) if most else 999_999_999
        return f"{self.up_to(number)}{'KMGT'[power]}" if number else f"{self.up_to(most or 1)}K"

    def variables(self) -> dict[str, str]:
        """Draw environment variables."""
        first = string.ascii_letters  # `_` alone belongs to bash
        return {self.letters(first, ALNUM + "_", 128): self.text() for _ in range(self.random.randint(1, 4))}

    def processes(self, gpus: int) -> int:
        """Draw the processes of a node; they share its GPUs evenly."""
        if gpus:
            return self.random.choice([n for n in range(1, gpus + 1) if gpus % n == 0])
        return self.random.choice([1, 1, 2, 4, self.random.randint(1, min(512, self.capacity.cpus))])

    def is_there(self, job: Mapping[str, Any]) -> bool:
        """Tell whether the partition and the account that a site names are there, where not any word will do."""
        named = [(kind, job.get(kind)) for kind in ("partition", "account")]
        return all(word in (None, *self.capacity.words.get(kind, [word])) for kind, word in named)

    def size(self, framework: str) -> dict[str, Any]:
        """Draw the fields of a size, which have to fit each other; a profile and a cluster may set some of them."""
        made: dict[str, Any] = {}
        preset: dict[str, Any] = {}
        if self.often(0.5):
            made["profile"] = self.random.choice(list(generate.PROFILES))
            preset |= generate.PROFILES[made["profile"]]
        if self.often(0.4):
            made["cluster"] = self.random.choice([name for name in sites.names() if self.is_there(sites.read(name))])
            preset |= sites.read(made["cluster"])
        if "nodes" not in preset or self.often():
            made["nodes"] = self.up_to(self.capacity.nodes)
        gpus = self.up_to(self.capacity.gpus) if framework != "gloo" and self.often(0.3) else 0
        if gpus:
            kind = self.random.choice(self.capacity.words.get("gpu") or ("a100", "H-1.0_x"))
            made |= {"platform": "gpu", "gpus_per_node": self.random.choice([gpus, f"{kind}:{gpus}"])}
        elif "gpus_per_node" in preset:
            made |= {"platform": "cpu", "gpus_per_node": None}
        processes = self.processes(gpus)
        cpus = preset.get("cpus_per_node", 0)
        if not cpus or cpus % processes or self.often():
            cpus = made["cpus_per_node"] = processes * self.up_to(max(1, self.capacity.cpus // processes))
        if processes != (gpus or 1) or self.often(0.2):
            made["processes_per_node"] = processes
        if framework == "jax" and not gpus and self.often(0.7):
            made["devices_per_process"] = self.up_to(cpus // processes)
        if self.often(0.6):
            each = self.often()
            # Slurm rounds up to MiB; with --exclusive it counts all CPUs of a node.
            most = self.capacity.memory and (
                self.capacity.memory // self.capacity.cpus - 1024 if each else self.capacity.memory
            )
            made["memory_per_cpu" if each else "memory_per_node"] = self.memory(most)
        return made

    def others(self) -> dict[str, Any]:
        """Draw the fields whose values fit those of any others."""
        random = self.random
        made = {
            "name": self.word(),
            "time_limit": self.time(),
            "exclusive": self.often(),
            "partition": self.words("partition", ","),
            "account": random.choice(self.capacity.words.get("account") or (self.word(),)),
            "qos": self.word(),
            "constraint": self.words("constraint", "&|"),
            # With a digit, as interfaces have: shellcheck takes `export NAME=fi` for a word of bash, bash does not.
            "network_interface": f"{self.letters(string.ascii_letters, ALNUM + '._-', 14)}0",
            "modules_to_load": [self.letters(ALNUM, ALNUM + "._+/@-", 128) for _ in range(random.randint(1, 3))],
            "env_vars": self.variables(),
            "coordinator_port": random.choice([1024, 65535, random.randint(1024, 65535)]),
            "output": self.output(),
            "requeue": self.often(),
            "signal": f"{random.choice(SIGNALS)}@{self.up_to(random.choice([300, 65535]))}",
            "arguments": [self.text() for _ in range(random.randint(1, 4))],
            **self.environment(),
        }
        return {name: value for name, value in made.items() if self.often()}

    def configuration(self) -> dict[str, Any]:
        """Draw a configuration as somebody might write it: mostly allowed, with hostile texts, and sometimes wrong."""
        framework = self.random.choice([*choices("framework"), "jax"])
        made = {"script": self.program(), "framework": framework, **self.size(framework), **self.others()}
        if made.get("platform") == "gpu" and self.often(0.4):
            made["gpu_option"] = self.random.choice(choices("gpu_option"))
        if framework == "torchrun" and self.often(0.3):
            made |= {"older_torchrun": True, "signal": "TERM@120"}
        if self.often(self.capacity.wrong):
            name = self.random.choice(list(JobSpecification.model_fields))
            anything = [*FATAL, self.text(), self.random.randint(-(10**6), 10**6), 0.5, None, True]
            wrong = self.random.choice(anything)
            kind = type(made.get(name))
            made[name] = [wrong] if kind is list else {"A": wrong} if kind is dict else wrong
        return made


@dataclass
class Trial:
    """What came of many configurations.

    Args:
        folder: Where the accepted scripts are.
        accepted: Specifications with their scripts.
        refused: The framework of each that was refused, and what was said.
    """

    folder: Path
    accepted: list[tuple[JobSpecification, Path]] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)

    def attempt(self, values: dict[str, Any]) -> None:
        """Render one configuration, if it is accepted."""
        try:
            job = generate.specify(Layer("here", values))
            text = generate.render(job.specification, made_by=f"srunbook generate --script {values['script']!r}")
        except JobError as error:
            self.refused.append((str(values["framework"]), str(error)))
            return
        path = self.folder / f"{len(self.accepted):05}.sbatch"
        path.write_bytes(text.encode())
        self.accepted.append((job.specification, path))


def generated(folder: Path, count: int, capacity: Capacity, seed: int = SEED) -> Trial:
    """Try as many configurations."""
    folder.mkdir()
    trial = Trial(folder)
    chance = Chance(capacity, seed)
    for _ in range(count):
        trial.attempt(chance.configuration())
    return trial
