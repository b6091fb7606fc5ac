"""Adapted scripts: what changes, what stays, what is refused, and the command `srunbook adapt`."""

from __future__ import annotations

import difflib
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.generated_jobs import Capacity, Chance

from srunbook import adapt, generate
from srunbook.adapt import Adapted, Site
from srunbook.cli import main
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


PARTITION, INTERFACE, IMAGE = {"partition": "batch"}, {"network_interface": "ib0"}, {"container_image": "$S/b.sif"}
BOTH = f"export {NCCL}=ib0\nexport {GLOO}=ib0"


def gpus(number: int | str) -> dict[str, Any]:
    """Return a site with so many GPUs on a node."""
    return {"gpus_per_node": number, "platform": "gpu"}


def modules(*names: str) -> dict[str, Any]:
    """Return a site with these modules."""
    return {"modules_to_load": list(names)}


@pytest.mark.parametrize(
    ("values", "before", "after"),
    [
        # The directive that counts changes, in the form that it has, or one is added after the last.
        (PARTITION, "#SBATCH --partition=gpu", "#SBATCH --partition=batch"),
        (PARTITION, "#SBATCH -p gpu  # EDIT: yours", "#SBATCH -p batch  # EDIT: yours"),
        (PARTITION, "#SBATCH --partition gpu -N 2", "#SBATCH --partition batch -N 2"),
        (PARTITION, "#SBATCH -N 2", "#SBATCH -N 2\n#SBATCH --partition=batch"),
        (PARTITION, "#SBATCH -p a\n#SBATCH -p b", "#SBATCH -p a\n#SBATCH -p batch"),
        (PARTITION, "srun x\n#SBATCH -p gpu", "#SBATCH --partition=batch\nsrun x\n#SBATCH -p gpu"),
        ({"constraint": None}, "#SBATCH --constraint=a100  # EDIT: or delete it\nsrun x", "srun x"),
        # GPUs are asked for as the site wants; one GPU stays one, and more become all of a node.
        (gpus(4), "#SBATCH --gpus-per-node=2", "#SBATCH --gpus-per-node=4"),
        (gpus("a100:4"), "#SBATCH --gpus-per-node=2", "#SBATCH --gres=gpu:a100:4"),
        (gpus(4), "#SBATCH --gres=gpu:v100:2", "#SBATCH --gpus-per-node=4"),
        (gpus(4), "#SBATCH --gres gpu", "#SBATCH --gpus-per-node=1"),
        (gpus("a100:4"), "#SBATCH --gres=gpu:8,nvme:100", "#SBATCH --gres=gpu:a100:4,nvme:100"),
        (gpus("a100:4"), "#SBATCH --gpus-per-task=v100:1", "#SBATCH --gpus-per-task=a100:1"),
        (gpus(4), "#SBATCH -G v100:8 -N 2", "#SBATCH -G 8 -N 2"),
        # The variables that a script names get the site's interface, or else both do.
        (INTERFACE, "set -e\npwd", f"set -e\n{BOTH}\npwd"),
        (INTERFACE, "module load a\npwd", f"module load a\n{BOTH}\npwd"),
        (INTERFACE, f"export {NCCL}=^docker,lo  # EDIT\npwd", f"export {NCCL}=ib0         # EDIT\npwd"),
        (INTERFACE, f'export {GLOO}="eth0" A=b\npwd', f"export {GLOO}=ib0 A=b\npwd"),
        (INTERFACE, f"# {GLOO} helps\npwd", f"# {GLOO} helps\nexport {GLOO}=ib0\npwd"),
        # Modules are those of the site; the commands keep their places and comments.
        (modules("b/2"), "module load a/1  # EDIT", "module load b/2  # EDIT"),
        (modules("x", "y"), "module load a\nmodule load b\nmodule load c", "module load x\nmodule load y"),
        (modules("x"), "module load a \\\n  b  # EDIT\nmodule load \\\n  c  # EDIT\npwd", "module load x  # EDIT\npwd"),
        (modules("x", "y", "z"), "module load a\nmodule load b", "module load x\nmodule load y z"),
        (modules("x"), "module purge && module load a b", "module purge && module load x"),
        (modules("x"), "ml purge\nml a b", "ml purge\nml x"),
        (modules(), "module load a  # EDIT\npwd", "pwd"),
        (modules("x"), "module use /x\npwd", "module load x\nmodule use /x\npwd"),
        # The image of each container is the site's, where it is named.
        (IMAGE, "singularity run --nv a.sif python x", 'singularity run --nv "$S/b.sif" python x'),
        (IMAGE, "srun apptainer exec -B /x --nv a.sif x", 'srun apptainer exec -B /x --nv "$S/b.sif" x'),
        (IMAGE, 'I=a.sif # EDIT\nsingularity run "$I" x', 'I="$S/b.sif" # EDIT\nsingularity run "$I" x'),
        (IMAGE, "singularity pull a.sif\nsingularity run a.sif", 'singularity pull a.sif\nsingularity run "$S/b.sif"'),
    ],
)
def test_a_line_is_fitted(values, before, after):
    """Each line that says something about the site changes, in the form that it has."""
    assert line(before, **values) == after


def test_tasks_follow_gpus():
    """One task for each GPU stays so, and CPUs are divided among the tasks; another number of tasks stays."""
    text = "#SBATCH --gpus-per-node=2\n#SBATCH --ntasks-per-node={}\n#SBATCH -c 3"
    here = {"gpus_per_node": 4, "cpus_per_node": 32, "platform": "gpu"}

    assert line(text.format(2), **here) == "#SBATCH --gpus-per-node=4\n#SBATCH --ntasks-per-node=4\n#SBATCH -c 8"
    assert line(text.format(1), **here) == "#SBATCH --gpus-per-node=4\n#SBATCH --ntasks-per-node=1\n#SBATCH -c 32"
    assert line("#SBATCH --cpus-per-gpu=2 -G 4", **here) == "#SBATCH --cpus-per-gpu=8 -G 4"
    total = "#SBATCH -N 3\n#SBATCH --gpus-per-node=2\n#SBATCH -n 6\n#SBATCH -c 3"
    assert line(total, **here).splitlines()[1:] == ["#SBATCH --gpus-per-node=4", "#SBATCH -n 12", "#SBATCH -c 8"]


@pytest.mark.parametrize(
    "body",
    [
        "srun torchrun --nproc_per_node=2 x.py",
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
        ("conda activate x", VENV, CONDA),
        ("source /c/etc/profile.d/conda.sh\nconda activate x\npwd", f"{VENV}\npwd", f"{CONDA}\npwd"),
        ('eval "$(conda shell.bash hook)"\nmamba activate x', VENV, CONDA),
        (
            'VENV=/x  # EDIT\nexport PATH="$VENV/bin:$PATH"',
            'VENV="$HOME/my-env"  # EDIT\nexport PATH="$VENV/bin:$PATH"',
            'VENV="$HOME/conda/envs/mine"  # EDIT\nexport PATH="$VENV/bin:$PATH"',
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
    ("text", "values", "number", "said"),
    [
        ("#SBATCH --gres=gpu:2\n#SBATCH -G 4", {"gpus_per_node": 4}, 2, "line 3"),
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
        ("module load a; module load b", {"modules_to_load": ["x"]}, 2, "its line with others"),
        (f"{GLOO}=a\n{GLOO}=b", {"network_interface": "ib0"}, 2, "line 3"),
        ("srun python x", {"container_image": "a.sif"}, 2, "without one"),
        ("pwd\nsrun singularity run a.sif x", {"virtual_environment": "/x"}, 3, "--set virtual_environment="),
        ('singularity run "${ARGS[@]}" x', {"container_image": "a.sif"}, 2, "not understood"),
        ("srun --container-image=x y", {"container_image": "a.sif"}, 2, "--container-image"),
        ("if true; then\necho", {"modules_to_load": ["x"]}, 2, "not understood"),
        ("", {"modules_to_load": ["x"], "first": "#!/usr/bin/env python3"}, 1, "not a script for bash"),
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
    texts = data.decode().splitlines(), made.data.decode().splitlines()
    _, _, *lines = difflib.unified_diff(*texts, n=0, lineterm="")

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
    assert b"#SBATCH --partition=batch" in made.data


def test_what_generate_made_stays():
    """A script that was made from a configuration is left alone by the same configuration."""
    chance = Chance(Capacity(wrong=0), 20261123)
    seen = 0
    for _ in range(150):
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
    assert seen > 75


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


SCRIPT = b"#!/bin/bash\n#SBATCH --partition=gpu  # EDIT: yours\n#SBATCH --time=10  # EDIT\nsrun x\n"
ADAPTED = SCRIPT.replace(b"=gpu  #", b"=batch  #")
CONFIG = "# mine\npartition: batch\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Make a folder with a script and a configuration, and go there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sbatch").write_bytes(SCRIPT)
    (tmp_path / "my.yaml").write_text(CONFIG, encoding="utf-8")
    return tmp_path


def run(*arguments: str, given: bytes | None = None) -> Result:
    """Run the command."""
    return CliRunner().invoke(main, ["adapt", *arguments], input=given)


def test_standard_output_carries_the_script_alone(here):
    """Standard error says what was changed, because of which line, and what is left."""
    done = run("job.sbatch", "--config", "my.yaml")

    assert (done.exit_code, done.stdout_bytes) == (0, ADAPTED)
    assert done.stderr.splitlines() == [
        "srunbook adapt: job.sbatch:2: --partition=gpu becomes --partition=batch [partition: my.yaml:2]",
        "srunbook adapt: job.sbatch:3: left as it is: marked EDIT, and the configuration does not name it",
    ]
    assert (here / "job.sbatch").read_bytes() == SCRIPT


def test_standard_input(here):
    """A script may come from a pipe; bytes that are no text come out as they went in."""
    done = run("-", "--set", "partition=batch", given=SCRIPT + b"# \xff\r\n\xe9")

    assert (done.exit_code, done.stdout_bytes) == (0, ADAPTED + b"# \xff\r\n\xe9")


def test_diff(here):
    """A unified diff is the product, and patch takes it."""
    (here / "job.sbatch").write_bytes(SCRIPT.rstrip(b"\n"))
    done = run("job.sbatch", "--config", "my.yaml", "--diff")

    assert done.stdout.splitlines()[:6] == [
        "--- job.sbatch",
        "+++ job.sbatch",
        "@@ -1,3 +1,3 @@",
        " #!/bin/bash",
        "-#SBATCH --partition=gpu  # EDIT: yours",
        "+#SBATCH --partition=batch  # EDIT: yours",
    ]
    assert (here / "job.sbatch").read_bytes() == SCRIPT.rstrip(b"\n")


def test_in_place_keeps_the_mode_and_a_link(here):
    """The file that a link leads to is written, its mode bits stay, and nothing else lies there afterwards."""
    path = here / "job.sbatch"
    path.chmod(0o750)
    (here / "link").symlink_to("job.sbatch")
    done = run("link", "--config", "my.yaml", "--in-place")

    assert (done.exit_code, done.stdout_bytes) == (0, b"")
    assert path.read_bytes() == ADAPTED
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert (here / "link").is_symlink()
    assert sorted(path.name for path in here.iterdir()) == ["job.sbatch", "link", "my.yaml"]


def test_in_place_is_whole_or_not_at_all(here, monkeypatch):
    """Where the disk is full, the file is as it was, and the status is 1."""

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    done = run("job.sbatch", "--config", "my.yaml", "--in-place")

    assert done.exit_code == 1
    assert "No space left on device; the file is as it was" in done.stderr
    assert (here / "job.sbatch").read_bytes() == SCRIPT
    assert sorted(path.name for path in here.iterdir()) == ["job.sbatch", "my.yaml"]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("job.sbatch",), 2, "nothing says what to adapt to"),
        (("missing", "--config", "my.yaml"), 2, "missing: No such file or directory"),
        (("job.sbatch", "--config", "none.yaml"), 2, "none.yaml"),
        (("job.sbatch", "--cluster", "nowhere"), 2, "'nowhere'"),
        (("job.sbatch", "--set", "partition=a b"), 2, "partition is 'a b'"),
        (("job.sbatch", "--set", "partitions=a"), 2, "did you mean partition"),
        (("-", "--config", "my.yaml", "--in-place"), 2, "standard input"),
        (("job.sbatch", "--config", "my.yaml", "--in-place", "--diff"), 2, "--diff"),
        (("wrong.sbatch", "--config", "my.yaml"), 3, "wrong.sbatch:3: a quote ' is not closed"),
    ],
)
def test_what_is_refused(here, arguments, status, said):
    """The message says what was found, the status tells a wrong option from a script that is not understood."""
    wrong = SCRIPT + b"#SBATCH\n"
    (here / "wrong.sbatch").write_bytes(wrong.replace(b"--time=10", b"--time='10"))
    done = run(*arguments)

    assert (done.exit_code, done.stdout_bytes, said in done.stderr) == (status, b"", True), done.stderr
    assert (here / "job.sbatch").read_bytes() == SCRIPT
