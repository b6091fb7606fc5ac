"""Adapted scripts: what changes, what stays, what is refused; scripts of this repository, of others, and drawn ones."""

from __future__ import annotations

import difflib
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.drawn_scripts import drawn_scripts
from support.generated_jobs import Capacity, Chance

from srunbook import adapt, generate
from srunbook.adapt import Adapted, Site
from srunbook.generate import JobError, Layer
from srunbook.script import ScriptError

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = sorted((ROOT / "slurm").rglob("*.sbatch"))
FOREIGN = sorted((ROOT / "tests" / "support" / "foreign_scripts").iterdir())

HERE = {
    "partition": "batch",
    "account": "physics",
    "qos": "short",
    "constraint": "a100",
    "platform": "gpu",
    "gpus_per_node": "a100:8",
    "cpus_per_node": 64,
}
"""A site without an environment."""

NCCL, GLOO = "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"

ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "venv": {"virtual_environment": "~/my-env"},
    "conda": {"conda_environment": "~/conda/envs/mine", "modules_to_load": ["cuda/12.4"]},
    "modules": {"modules_to_load": ["gcc/12", "pytorch/2.13"]},
    "container": {"container_image": "$SCRATCH/mine.sif", "modules_to_load": []},
}
"""Each kind of environment."""


def site(**values: Any) -> Site:
    """Make a site."""
    return adapt.site(Layer("here", values))


def adapted(text: str, first: str = "#!/bin/bash", **values: Any) -> Adapted:
    """Adapt the body of a script."""
    return adapt.adapt(f"{first}\n{text}".encode(), site(**values))


def line(text: str, **values: Any) -> str:
    """Adapt a script and return its lines after the first."""
    return adapted(text, **values).data.decode().partition("\n")[2].rstrip("\n")


def refused(text: str, **values: Any) -> ScriptError:
    """Return how a script is refused."""
    with pytest.raises(ScriptError) as caught:
        adapted(text, **values)
    return caught.value


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("#SBATCH --partition=gpu", "#SBATCH --partition=batch"),
        ("#SBATCH -p gpu  # EDIT: yours", "#SBATCH -p batch  # EDIT: yours"),
        ("#SBATCH -p gpu    # EDIT: yours", "#SBATCH -p batch  # EDIT: yours"),
        ("#SBATCH --partition gpu -N 2", "#SBATCH --partition batch -N 2"),
        ('#SBATCH --partition="gpu"', "#SBATCH --partition=batch"),
        ("#SBATCH -N 2", "#SBATCH -N 2\n#SBATCH --partition=batch"),
        ("#SBATCH -p a\n#SBATCH -p b", "#SBATCH -p a\n#SBATCH -p batch"),
        ("#SBATCH -p batch", "#SBATCH -p batch"),
        ("srun x", "#SBATCH --partition=batch\nsrun x"),
        ("srun x\n#SBATCH -p gpu", "#SBATCH --partition=batch\nsrun x\n#SBATCH -p gpu"),
    ],
)
def test_a_directive_is_set_or_replaced(before, after):
    """The one that counts changes, in the form that it has, or one is added after the last."""
    assert line(before, partition="batch") == after


def test_null_takes_a_directive_away():
    """A field that is null is one that the site does not want; a field that is missing changes nothing."""
    text = "#SBATCH -p gpu\n#SBATCH --constraint=a100  # EDIT: or delete it\n#SBATCH --account=x\nsrun x"

    assert line(text, partition="batch", constraint=None) == "#SBATCH -p batch\n#SBATCH --account=x\nsrun x"


@pytest.mark.parametrize(
    ("asked", "gpus", "expected"),
    [
        ("--gpus-per-node=2", 4, "--gpus-per-node=4"),
        ("--gpus-per-node=2", "a100:4", "--gres=gpu:a100:4"),
        ("--gres=gpu:v100:2", 4, "--gpus-per-node=4"),
        ("--gres=gpu:2", "a100:4", "--gres=gpu:a100:4"),
        ("--gres=gpu:v100", "a100:4", "--gres=gpu:a100:1"),
        ("--gres gpu", 4, "--gpus-per-node=1"),
        ("--gres=gpu:8,nvme:100", "a100:4", "--gres=gpu:a100:4,nvme:100"),
        ("--gres=nvme:100", "a100:4", "--gres=nvme:100"),
        ("--gpus-per-node=v100:1", "a100:4", "--gres=gpu:a100:1"),
        ("--gpus-per-node=0", 4, "--gpus-per-node=0"),
        ("--gpus-per-task=v100:1", "a100:4", "--gpus-per-task=a100:1"),
        ("-G v100:8 -N 2", 4, "-G 8 -N 2"),
    ],
)
def test_gpus_are_asked_for_as_the_site_wants(asked, gpus, expected):
    """The form and the type are the site's; one GPU stays one, and more become all of a node."""
    assert line(f"#SBATCH {asked}", gpus_per_node=gpus, platform="gpu") == f"#SBATCH {expected}"


def test_directives_of_other_languages():
    """A job script in Python or csh has directives like any other."""
    for first in ("#!/usr/bin/env python3", "#!/bin/tcsh"):
        made = adapted("#SBATCH -p gpu\nprint('x')\n", first, partition="batch")
        assert made.data.decode() == f"{first}\n#SBATCH -p batch\nprint('x')\n"
    for first in ("#!/bin/sh", "#!/bin/bash -l", "#! /usr/bin/env bash", "#!/usr/bin/zsh"):
        assert adapted("module load a\n", first, modules_to_load=["b"]).data.endswith(b"load b\n")


def test_tasks_follow_gpus():
    """One task for each GPU stays so, and CPUs are divided among the tasks; another number of tasks stays."""
    text = "#SBATCH --gpus-per-node=2\n#SBATCH --ntasks-per-node={}\n#SBATCH -c 3"
    here = {"gpus_per_node": 4, "cpus_per_node": 32, "platform": "gpu"}

    assert line(text.format(2), **here) == "#SBATCH --gpus-per-node=4\n#SBATCH --ntasks-per-node=4\n#SBATCH -c 8"
    assert line(text.format(1), **here) == "#SBATCH --gpus-per-node=4\n#SBATCH --ntasks-per-node=1\n#SBATCH -c 32"
    total = "#SBATCH -N 3\n#SBATCH --gpus-per-node=2\n#SBATCH -n 6\n#SBATCH -c 3"
    assert line(total, **here).splitlines()[1:] == ["#SBATCH --gpus-per-node=4", "#SBATCH -n 12", "#SBATCH -c 8"]


def test_a_part_of_the_node_has_its_part_of_the_cpus():
    """A job with one GPU of four takes a quarter of the CPUs; a job without GPUs takes all for its tasks."""
    here = {"gpus_per_node": 4, "cpus_per_node": 72, "platform": "gpu"}

    assert line("#SBATCH --gpus-per-node=1 -c 4", **here) == "#SBATCH --gpus-per-node=1 -c 18"
    assert line("#SBATCH -c 4 --ntasks-per-node=8", **here) == "#SBATCH -c 9 --ntasks-per-node=8"
    assert line("#SBATCH --cpus-per-gpu=2 -G 4", **here) == "#SBATCH --cpus-per-gpu=18 -G 4"
    assert line("#SBATCH --gpus-per-node=4", **here) == "#SBATCH --gpus-per-node=4\n#SBATCH --cpus-per-task=72"
    assert line("#SBATCH -n 7 -N 2-4 -c 2", **here) == "#SBATCH -n 7 -N 2-4 -c 2"


@pytest.mark.parametrize(
    "body",
    [
        "srun torchrun --nproc_per_node=2 x.py",
        "srun torchrun --nproc-per-node 2 x.py",
        "NPROC=2\nsrun torchrun --nproc_per_node=$NPROC x.py",
        'export NPROC="2"  # of a node\nARGS=(\n  --nproc-per-node "${NPROC}"\n)\nsrun torchrun "${ARGS[@]}" x.py',
        "deepspeed --num_gpus 2 x.py",
    ],
)
def test_the_number_of_processes_follows(body):
    """What tells a launcher how many processes to start changes with the GPUs; other numbers do not."""
    text = f"#SBATCH --gpus-per-node=2\n{body} --layers 2\nOTHER=2\n"

    assert line(text, gpus_per_node=4, platform="gpu") == (
        text.replace("node=2\n", "node=4\n", 1).replace(body, body.replace("2", "4")).rstrip("\n")
    )


VENV = 'source "$HOME/my-env/bin/activate"'
CONDA = 'source "$HOME/conda/bin/activate" mine'


@pytest.mark.parametrize(
    ("before", "venv", "conda"),
    [
        ("source ~/x/bin/activate  # EDIT", f"{VENV}  # EDIT", f"{CONDA}  # EDIT"),
        (". /x/bin/activate; echo", f"{VENV}; echo", f"{CONDA}; echo"),
        ("conda activate x", VENV, CONDA),
        ("source activate x", VENV, CONDA),
        ("source /c/etc/profile.d/conda.sh\nconda activate x\npwd", f"{VENV}\npwd", f"{CONDA}\npwd"),
        ('eval "$(conda shell.bash hook)"\nmamba activate x', VENV, CONDA),
        ('source "/c/bin/activate" x # y', f"{VENV} # y", f"{CONDA} # y"),
        (
            'VENV=/x  # EDIT\nexport PATH="$VENV/bin:$PATH"',
            'VENV="$HOME/my-env"  # EDIT\nexport PATH="$VENV/bin:$PATH"',
            'VENV="$HOME/conda/envs/mine"  # EDIT\nexport PATH="$VENV/bin:$PATH"',
        ),
        (
            'E=/x\nsource "$E/bin/activate"',
            'E="$HOME/my-env"\nsource "$E/bin/activate"',
            f'E="$HOME/conda/envs/mine"\n{CONDA}',
        ),
    ],
)
def test_python_comes_from_the_environment_of_the_site(before, venv, conda):
    """Each usual way to choose a Python becomes the site's, of the same or of the other kind."""
    assert line(before, virtual_environment="~/my-env") == venv
    assert line(before, conda_environment="~/conda/envs/mine") == conda


@pytest.mark.parametrize(
    "after",
    [
        "{}CUDA=/x\nPATH=$CUDA/bin:$PATH",
        "set -e\nmodule load a\n{}\npython x",
        "set -e\n\n{}if x; then\n  y\nfi",
        "# nothing\n{}",
    ],
)
def test_an_environment_is_added(after):
    """Where a script chooses no Python, it does so after modules, or before its first step."""
    for command, values in (
        (VENV, {"virtual_environment": "~/my-env"}),
        (CONDA, {"conda_environment": "~/conda/envs/mine"}),
    ):
        assert line(after.format(""), **values) == after.format(f"{command}\n").rstrip("\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("set -e\npwd", f"set -e\nexport {NCCL}=ib0\nexport {GLOO}=ib0\npwd"),
        ("module load a\npwd", f"module load a\nexport {NCCL}=ib0\nexport {GLOO}=ib0\npwd"),
        (f"export {NCCL}=^docker,lo  # EDIT\npwd", f"export {NCCL}=ib0         # EDIT\npwd"),
        (f'export {GLOO}="eth0" A=b\npwd', f"export {GLOO}=ib0 A=b\npwd"),
        (f"export {GLOO}='ib0'\npwd", f"export {GLOO}='ib0'\npwd"),
        (f"{NCCL}=$X\n{GLOO}=y\npwd", f"{NCCL}=ib0\n{GLOO}=ib0\npwd"),
        (f"# {GLOO} helps\npwd", f"# {GLOO} helps\nexport {GLOO}=ib0\npwd"),
    ],
)
def test_interfaces(before, after):
    """The variables that a script names get the site's interface, or else both do; an empty field changes nothing."""
    assert line(before, network_interface="ib0") == after
    assert line(before, network_interface=None) == before


@pytest.mark.parametrize(
    ("before", "wanted", "after"),
    [
        ("module load a/1  # EDIT", ["b/2"], "module load b/2  # EDIT"),
        ("module load a/1  # EDIT", ["b/2", "c"], "module load b/2 c  # EDIT"),
        ("module load a\nmodule load b\nmodule load c", ["x", "y"], "module load x\nmodule load y"),
        ("module load a \\\n  b  # EDIT\nmodule load \\\n  c  # EDIT\npwd", ["x"], "module load x  # EDIT\npwd"),
        ("module load a\nmodule load b", ["x", "y", "z"], "module load x\nmodule load y z"),
        ("module purge && module load a b", ["x"], "module purge && module load x"),
        ("ml purge\nml a b", ["x"], "ml purge\nml x"),
        ("ml load a", ["x"], "ml load x"),
        ("module -s load a", ["x"], "module -s load x"),
        ("module load a  # EDIT\npwd", [], "pwd"),
        ("module use /x\npwd", ["x"], "module load x\nmodule use /x\npwd"),
        ("module load x\nmodule load y", ["x", "y"], "module load x\nmodule load y"),
        ('module load "$M"', ["x"], "module load x"),
    ],
)
def test_modules(before, wanted, after):
    """Modules are those of the site; the commands keep their places and comments."""
    assert line(before, modules_to_load=wanted) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("singularity run --nv a.sif python x", 'singularity run --nv "$S/b.sif" python x'),
        (
            "srun -n 2 apptainer exec -B /x --nv a.sif python x",
            'srun -n 2 apptainer exec -B /x --nv "$S/b.sif" python x',
        ),
        (
            'IMAGE=a.sif # EDIT\nsrun singularity run "$IMAGE" x',
            'IMAGE="$S/b.sif" # EDIT\nsrun singularity run "$IMAGE" x',
        ),
        ('singularity run "$FROM_A_MODULE" x', 'singularity run "$S/b.sif" x'),
        ("singularity --quiet run $I x", 'singularity --quiet run "$S/b.sif" x'),
        ("singularity pull a.sif\nsingularity run a.sif", 'singularity pull a.sif\nsingularity run "$S/b.sif"'),
    ],
)
def test_images(before, after):
    """The image of each container is the site's, where it is named."""
    assert line(before, container_image="$S/b.sif") == after


@pytest.mark.parametrize(
    ("text", "values", "number", "said"),
    [
        ("#SBATCH --gres=gpu:2\n#SBATCH -G 4", {"gpus_per_node": 4}, 2, "line 3"),
        ("#SBATCH --gres=gpu:2(S:0)", {"gpus_per_node": 4}, 2, "not understood"),
        ("#SBATCH --gpus-per-node=a:1,b:1", {"gpus_per_node": 4}, 2, "not understood"),
        ("#SBATCH --tres-per-task=gres/gpu:1", {"gpus_per_node": 4}, 2, "not understood"),
        ("#SBATCH -N 2 -G 16", {"gpus_per_node": 4}, 2, "asks for 8 GPUs of a node, and the configuration has 4"),
        (
            "#SBATCH --ntasks-per-node=9 -c 1",
            {"cpus_per_node": 8, "gpus_per_node": None},
            2,
            "9 tasks on a node share 8",
        ),
        ("#PBS -q x\nsrun x", {"partition": "p"}, 2, "another batch system"),
        ("#SBATCH -N 2\n\nif true; then\n  source ~/a/bin/activate\nfi", {"virtual_environment": "/x"}, 5, "condition"),
        ("source ~/a/bin/activate\nconda activate b", {"virtual_environment": "/x"}, 2, "line 3"),
        ("f() {\n  module load a\n}", {"modules_to_load": ["x"]}, 3, "condition"),
        ("module load a; module load b", {"modules_to_load": ["x"]}, 2, "its line with others"),
        (f"if x; then\n  {NCCL}=y\nfi", {"network_interface": "ib0"}, 3, "condition"),
        (f"{GLOO}=a\n{GLOO}=b", {"network_interface": "ib0"}, 2, "line 3"),
        ("srun python x", {"container_image": "a.sif"}, 2, "without one"),
        ("pwd\nsrun singularity run a.sif x", {"virtual_environment": "/x"}, 3, "--set virtual_environment="),
        ('singularity run "${ARGS[@]}" x', {"container_image": "a.sif"}, 2, "not understood"),
        ("singularity exec $nv b.sif x", {"container_image": "a.sif"}, 2, "not understood"),
        ("singularity exec $nv --bind x b.sif x", {"container_image": "a.sif"}, 2, "not understood"),
        ("srun --container-image=x y", {"container_image": "a.sif"}, 2, "--container-image"),
        ("I=a\nI=b\nsingularity run $I", {"container_image": "a.sif"}, 2, "line 3"),
        ("if true; then\necho", {"modules_to_load": ["x"]}, 2, "not understood"),
        ("", {"modules_to_load": ["x"], "first": "#!/usr/bin/env python3"}, 1, "not a script for bash"),
        ("", {"virtual_environment": "/x", "first": "#!/bin/tcsh"}, 1, "not a script for bash"),
    ],
)
def test_what_is_not_understood_is_refused(text, values, number, said):
    """The message has the line; nothing of the script is changed."""
    values = {"platform": "gpu", **values} if values.get("gpus_per_node") else values
    error = refused(text, **values)

    assert (error.line, said in error.problem) == (number, True), str(error)


def test_what_is_left_for_a_person_is_said():
    """Lines marked EDIT that nobody adapted, a script without GPUs, what srun asks for itself, ends of lines of DOS."""
    text = "#SBATCH -t 5  # EDIT\r\n#SBATCH -p x  # EDIT\r\nsrun --label --gres=gpu:1 -n 4 -N $N y -c 5\r\n"
    made = adapted(text, **HERE)

    assert [number for number, _ in made.notes] == [1, 1, 2, 4]
    assert made.notes[-1][1] == "srun asks for --gres=gpu:1 -n 4 itself"
    assert made.data.count(b"\r\n") == made.data.count(b"\n") - 1


def test_conda_and_unset_variables():
    """A script that stops at unset variables may stop in those of conda: that is said where conda is new."""
    text = "set -euo pipefail\nsource ~/x/bin/activate\n"
    made = adapted(text, conda_environment="~/conda/envs/mine")

    assert [number for number, said in made.notes if "unbound" in said] == [2]
    assert adapt.adapt(made.data, site(conda_environment="~/conda/envs/mine")).notes == ()


EXPECTED = {
    "container.job": """\
-#SBATCH --gpus-per-node=v100l:4
-#SBATCH --ntasks-per-node=4
+#SBATCH --gres=gpu:a100:8
+#SBATCH --ntasks-per-node=8
+#SBATCH --partition=batch
-module load StdEnv/2023 apptainer/1.2.4
+module load apptainer
-SIF=/project/def-prof/images/torch_23.10.sif
+SIF="$SCRATCH/mine.sif"
""",
    "deepspeed.sbatch": """\
-#SBATCH --gres=gpu:8,nvme:1600
-#SBATCH --cpus-per-gpu=6
+#SBATCH --gres=gpu:a100:8,nvme:1600
+#SBATCH --cpus-per-gpu=8
+#SBATCH --partition=batch
-. ~/envs/ds/bin/activate
+source "$HOME/my-env/bin/activate"
""",
    "finetune_one_gpu.sh": """\
-#SBATCH --partition=gpu_short
-#SBATCH --gpus=v100:1
+#SBATCH --partition=batch
+#SBATCH --gpus=a100:1
-source /projects/nlp/envs/ft/bin/activate
+source "$HOME/my-env/bin/activate"
""",
    "llm_torchrun.slurm": """\
-#SBATCH -A bigproj -p booster   # our queue
+#SBATCH -A bigproj -p batch     # our queue
-#SBATCH --gres=gpu:4
-#SBATCH --ntasks-per-node=1 --cpus-per-task=48
+#SBATCH --gres=gpu:a100:8
+#SBATCH --ntasks-per-node=1 --cpus-per-task=64
-source ~/miniconda3/etc/profile.d/conda.sh
-conda activate pretrain
+source "$HOME/my-env/bin/activate"
-GPUS_PER_NODE=4
+GPUS_PER_NODE=8
""",
    "mpi_simulation.sh": """\
+#SBATCH --partition=batch
+source "$HOME/my-env/bin/activate"
""",
}
"""What changes in each script in the style of other people."""


@pytest.mark.parametrize("path", FOREIGN, ids=lambda path: path.stem)
def test_scripts_of_others(path):
    """Only the lines change that have to; the rest is there byte for byte."""
    data = path.read_bytes()
    environment = {"container_image": "$SCRATCH/mine.sif", "modules_to_load": ["apptainer"]}
    environment = environment if path.name == "container.job" else {"virtual_environment": "~/my-env"}
    here = {name: HERE[name] for name in ("partition", "platform", "gpus_per_node", "cpus_per_node")}
    made = adapt.adapt(data, site(**here, **environment))
    lines = list(difflib.unified_diff(data.decode().splitlines(), made.data.decode().splitlines(), n=0, lineterm=""))[
        2:
    ]

    assert "".join(f"{text}\n" for text in lines if not text.startswith("@@")) == EXPECTED[path.name]
    assert adapt.adapt(made.data, site(**here, **environment)).data == made.data


@pytest.mark.parametrize("kind", ENVIRONMENTS)
@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_published_scripts(path, kind):
    """Each script of the repository takes each environment that its programs can run in; twice is once."""
    there = site(**HERE, **ENVIRONMENTS[kind])
    inside = "singularity run" in path.read_text(encoding="utf-8")
    if inside != (kind == "container") and kind != "modules":
        with pytest.raises(ScriptError, match="container"):
            adapt.adapt(path.read_bytes(), there)
        return
    made = adapt.adapt(path.read_bytes(), there)

    assert adapt.adapt(made.data, there).data == made.data
    text = made.data.decode()
    assert "#SBATCH --partition=batch" in text
    assert ("gpu:a100:" in text) == ("gpus-per-node" in path.read_text() or "gres" in path.read_text())
    changed = {change.line for change in made.changes}
    matcher = difflib.SequenceMatcher(None, path.read_text().splitlines(), text.splitlines(), autojunk=False)
    gone = [
        range(first + 1, last + 1) for tag, first, last, _, _ in matcher.get_opcodes() if tag in ("replace", "delete")
    ]
    assert {number for numbers in gone for number in numbers} <= changed


@pytest.mark.parametrize("count", [pytest.param(150), pytest.param(10_000, marks=pytest.mark.full)])
def test_what_generate_made_stays(count):
    """A script that was made from a configuration is left alone by the same configuration."""
    chance = Chance(Capacity(wrong=0), 20261123)
    seen = 0
    for _ in range(count):
        values = chance.configuration()
        values.pop("gpu_option", None)  # adapt has a rule of its own
        layer = Layer("here", values)
        try:
            text = generate.render(generate.specify(layer).specification)
        except JobError:
            continue
        there = adapt.site(layer)
        assert adapt.adapt(text.encode(), there).data.decode() == text
        seen += 1
    assert seen > count // 2


def test_quoted_text_is_no_use_of_a_variable():
    """What is in single quotes or in a comment is not expanded, so a variable of that name is no environment."""
    text = 'b=x  # $b/bin/python\nVENV="$HOME"/\'a$b/bin/python\'\nexport PATH="$VENV/bin:$PATH"'

    assert line(text, virtual_environment="/y") == text.replace("\"$HOME\"/'a$b/bin/python'", '"/y"')


def drawn_site(chance: Chance) -> Site:
    """Draw a site, as a file would have it."""
    drawn = chance.configuration()
    for name in ("script", "framework", "profile", "arguments", "processes_per_node", "devices_per_process"):
        drawn.pop(name, None)
    return adapt.site(Layer("here", drawn))


@pytest.mark.parametrize("count", [pytest.param(300), pytest.param(10_000, marks=pytest.mark.full)])
def test_twice_is_once(count):
    """Adapting a script twice is adapting it once, for drawn sites and for scripts of every origin."""
    chance, seen = Chance(Capacity(wrong=0), 20261124), 0
    scripts = [*(path.read_bytes() for path in (*PUBLISHED, *FOREIGN)), *drawn_scripts(60, odd=0)]
    for _ in range(count):
        try:
            there = drawn_site(chance)
            data = chance.random.choice(scripts)
            once = adapt.adapt(data, there).data
        except (JobError, ScriptError):
            continue
        assert adapt.adapt(once, there).data == once, data.decode()
        seen += 1
    assert seen > count // 4


@given(st.randoms(use_true_random=False))
def test_bytes_that_are_no_text_stay(chance: random.Random):
    """Bytes that are not UTF-8, in comments and texts, are there afterwards as they were."""
    odd = bytes(chance.choices([0x80, 0xFF, 0xE9, 0xA0], k=3))
    data = (
        b"#!/bin/bash\n# "
        + odd
        + b"\n#SBATCH -p gpu  # "
        + odd
        + b"\nmodule load a # "
        + odd
        + b"\necho '"
        + odd
        + b"'"
    )
    made = adapt.adapt(data, site(partition="batch", modules_to_load=["b"])).data

    assert made == data.replace(b"-p gpu  #", b"-p batch  #").replace(b"load a", b"load b")


def test_a_site_is_judged_as_a_whole_configuration():
    """What `srunbook generate` refuses is refused in the same words; a profile says nothing of a site."""
    for values in (
        {"partition": "a b"},
        {"account": "x\n#SBATCH --nodes=9"},
        {"container_image": "a", "virtual_environment": "b"},
    ):
        with pytest.raises(JobError) as here:
            site(**values)
        with pytest.raises(JobError) as there:
            generate.specify(Layer("here", {"script": "x.py", "nodes": 1, "cpus_per_node": 1, **values}))
        assert str(here.value) == str(there.value)
    assert site(profile="small").values == {}
    assert site(cluster="raven").values == {"gpus_per_node": "a100:4", "cpus_per_node": 72}
