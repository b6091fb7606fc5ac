"""Draw job scripts whose directives use every form that sbatch knows, and some that it refuses."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

SEED = 20261123

OPTIONS = re.split(
    r"  |\n",
    r"""--nodes=2  --nodes 2  -N 2  -N2  --part=batch  --partition batch  -p batch  -pbatch  -Hp batch  --job-name='a b'
--job-name="a b"  -J a\ b  -J a\#b  --comment "it's"  --comment=a#b  -J 'a'"b"  --exclusive  --exclusive=user
--nice  --nice=5  --requeue  -H  "--wckey"=w  --wckey=\\  -J é  --gres=gpu:a100:2,licence:1  --gpus-per-node=2  -G 4
--constraint='a100&ib'  --mem=4G  -c4  -n 8  --comment ''  --comment=""  --ntasks-per-node	4  --time 10
--time=1:00:00  -t5  --signal=USR1@60""",
)
"""Options as people write them."""

ODD = ["'", '"', "\\", "#", ":", "foo", "--", "-", "hetjob", "''", "--unknown=1", "--time", "a'b\"c'"]
"""What sbatch takes in its own way, or refuses."""

BETWEEN = [
    *("# a comment", "", "  # indented", "\t", " #SBATCH --nodes=9", "##SBATCH --nodes=9"),
    *("#", "#SBATCH", "#SBATCH #x"),
]
"""Lines between directives."""

BODY = ["echo done", "#SBATCH --nodes=9", "srun hostname", "cat <<END\n#SBATCH --nodes=9\nEND", "exit 0"]
"""What follows the directives."""


def drawn_script(chance: random.Random, odd: float = 0.1) -> bytes:
    """Draw one script."""
    lines = ["#!/bin/bash"]
    for _ in range(chance.randint(0, 6)):
        if chance.random() < 0.3:
            lines.append(chance.choice(BETWEEN))
        else:
            count = chance.choice([1, 1, 1, 2, 3])
            words = [chance.choice(ODD if chance.random() < odd else OPTIONS) for _ in range(count)]
            comment = chance.choice(["", "", "  # EDIT: yours", " #", "# x"])
            magic = chance.choice(["#SBATCH "] * 8 + ["#SBATCH\t", "#SBATCH", "#SLURM "])
            lines.append(magic + chance.choice([" ", "  ", "\t"]).join(words) + comment)
    lines += chance.sample(BODY, chance.randint(1, 3))
    return ("\n".join(lines) + chance.choice(["\n", ""])).encode()


def drawn_scripts(count: int, seed: int = SEED, odd: float = 0.1) -> Iterator[bytes]:
    """Draw scripts, the same ones for the same seed."""
    chance = random.Random(seed)
    for _ in range(count):
        yield drawn_script(chance, odd)
