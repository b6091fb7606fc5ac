"""What a job prints in a wrong environment: the messages that the pages on environments and containers explain."""

from __future__ import annotations

import re
from pathlib import Path

from support.published import give_pyxis, give_squashfs, submit

from srunbook.cluster import State

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "docs" / "start" / "environments.md", ROOT / "docs" / "guides" / "containers.md")

INSIDE = "srun --label singularity run /opt/images/jax.sif"
WRITE = 'mkdir -p /scratch/here; echo "print(6 * 7)" >/scratch/here/x.py'

ANYWHERE = {
    "bin/activate: No such file or directory": 'source "$HOME/torch_env/bin/activate"',
    "execve(): torchrun: No such file or directory": "srun --label torchrun --help",
    "ModuleNotFoundError: No module named 'torch'": 'srun --label python3 -c "import torch"',
    "bad interpreter": "PATH=$PWD/moved:$PATH srun --label torchrun --help",
    "conda: command not found": "conda activate torch-env",
    "module: command not found": "env -i bash -c 'module avail'",
    "Unable to locate a modulefile for": "module load pytroch/2.13",
}
"""Messages, each with lines of a job script that are wrong."""

PYXIS = 'srun --label --container-image="$HOME/jax.sqsh"'
CHARLIECLOUD = "srun --label ch-run --set-env"

WITHOUT_ENGINES = {
    "singularity: No such file or directory": f"{INSIDE} python -c 1",
    "unrecognized option '--container-image": f"{PYXIS} python -c 1",
}
WITH_ENGINES = {
    "execve(): python: No such file or directory": f"{PYXIS} --container-mounts=/dev/null:/etc/environment python -c 1",
    "srun: command not found": f"{PYXIS} bash -c 'srun hostname'",
    "can't stat": f'{CHARLIECLOUD} "$HOME/nope.sqsh" -- python -c 1',
    "can't exec: python": 'srun --label ch-run "$HOME/jax.sqsh" -- python -c 1',
    "can't cd to": f'{CHARLIECLOUD} --cd="$PWD" "$HOME/jax.sqsh" -- python -c 1',
    "can't mkdir": f'{CHARLIECLOUD} --bind=/scratch "$HOME/jax.sqsh" -- python -c 1',
    "could not open image": 'srun --label singularity run "$HOME/jax.sif" python -c 1',
    "can't open file": f"{WRITE}; {INSIDE} python /scratch/here/x.py",
    "/bin/python: not found": f'{INSIDE} "$HOME/torch-env/bin/python" -c 1',
}
CONTAINER = WITHOUT_ENGINES | WITH_ENGINES

MENDED = {
    "ModuleNotFoundError: No module named 'torch'": (
        'source "$HOME/torch-env/bin/activate"; srun --label python3 -c "import torch"'
    ),
    "module: command not found": "env -i bash -l -c 'module avail'",
    "execve(): python: No such file or directory": f"{PYXIS} python -c 1",
    "can't exec: python": f'{CHARLIECLOUD} "$HOME/jax.sqsh" -- python -c 1',
    "can't cd to": f'{CHARLIECLOUD} --home --cd="$PWD" "$HOME/jax.sqsh" -- python -c 1',
    "can't mkdir": f'{CHARLIECLOUD} --write-fake --bind=/scratch "$HOME/jax.sqsh" -- python -c 1',
    "can't open file": f"{WRITE}; {INSIDE.replace('run /', 'run --bind /scratch /')} python /scratch/here/x.py",
}
"""The same messages, with lines that are right."""

ELSEWHERE = {
    "CondaError: Run 'conda init' before 'conda activate'": "conda's own",
    "EnvironmentNameNotFound: Could not find conda environment": "conda's own, which its stand-in repeats",
    "unbound variable": "bash's, in the activation script of a package of conda-forge",
    "The following module(s) are unknown": "Lmod's; this cluster has environment-modules",
}
"""Messages of software that this cluster lacks, and whose they are."""

ONE_NODE = """\
mkdir -p /tmp/env/bin; ln -sf /bin/true /tmp/env/bin/torchrun
PATH=/tmp/env/bin:$PATH srun --label torchrun
"""
"""An environment on the first node's own disk."""

JOB = """\
#!/bin/bash
#SBATCH --output=%x-%j.out
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=00:05:00
mkdir moved; printf '#!/gone/bin/python\\n' >moved/torchrun; chmod +x moved/torchrun
"""


def explained() -> list[str]:
    """Return the messages in the tables of the pages."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    tables = re.findall(r"^\| You see \| Do \|\n\|---\|---\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    cells = [row.split(" | ")[0] for table in tables for row in table.splitlines()]
    return [message for cell in cells for message in re.findall(r"`([^`]+)`", cell)]


def printed(slurm: State, folder: Path, cases: dict[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    """Run the lines of each case in one job, and return what each made it print."""
    parts = [f"printf '\\n=== %s\\n' {number}\n(\n{lines}\n) 2>&1\n" for number, lines in enumerate(cases.values())]
    script = folder / "wrong.sbatch"
    script.write_text(JOB + "".join(parts) + "true\n", encoding="utf-8")
    job = submit(slurm, script)
    assert job.state == "COMPLETED", job.output
    outputs = re.split(r"^=== \d+\n", job.output, flags=re.MULTILINE)[1:]
    return dict(zip(cases, outputs, strict=True))


def test_every_message_of_the_pages_is_known():
    """A message that a page explains is seen below, or said to be of software that the cluster lacks."""
    assert sorted(explained()) == sorted([*ANYWHERE, *CONTAINER, *ELSEWHERE])


def test_wrong_lines_print_the_messages_of_the_pages(slurm, tmp_path):
    """Each message follows from the lines that are wrong, and not from those that are right."""
    engines = "apptainer" in slurm.root["versions"]
    if engines:
        give_squashfs(slurm, "jax")
        give_pyxis(slurm)
    fitting = WITH_ENGINES if engines else WITHOUT_ENGINES
    wrong = ANYWHERE | fitting
    cases = {("wrong", message): lines for message, lines in wrong.items()}
    cases |= {("right", message): lines for message, lines in MENDED.items() if message in wrong}
    outputs = printed(slurm, tmp_path, cases | {("one node", ""): ONE_NODE})
    alone = outputs.pop(("one node", ""))
    amiss = {key: text for key, text in outputs.items() if (key[1] in text) != (key[0] == "wrong")}

    assert amiss == {}
    assert re.findall(r"^(\d): .*execve\(\): torchrun", alone, re.MULTILINE) == ["1"]
